#!/usr/bin/env python3
"""Documents with compiled code pass check_docs.py; other code fails with a message for its kind."""

import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_docs  # noqa: E402

TREE = {
    "examples/CMakeLists.txt": "add_subdirectory(one)\n",
    "examples/one/CMakeLists.txt": "foreach(side client)\n    add_executable(x ${side}.cc)\n"
                                   "endforeach()\nweft_generate(TARGET x PROTOS a.proto)\n",
    "examples/one/a.proto": 'syntax = "proto3";\n\nmessage A {}\n',
    "examples/one/client.cc": '#include "used.h"\n\nint main() {\n    return 0;\n}\n',
    "examples/one/used.h": "#pragma once\n",
    "examples/one/unused.h": "#pragma once\n",
    "examples/one/forgotten.cc": "int main() {}\n",
    "examples/two/CMakeLists.txt": "add_executable(y y.cc)\n",
    "tests/build_it.py": "# Builds the first block of README.md.\n",
}


def block(language, code, above):
    return f"Before.\n\n{above}\n\n```{language}\n{code}```\n\nAfter.\n"


class CheckAnchors(unittest.TestCase):
    def test_a_link_to_a_heading_that_is_missing_fails(self):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.join(root, "docs"))
            with open(os.path.join(root, "docs/a.md"), "w", encoding="utf-8") as file:
                file.write("# A title: of two, parts\n[x](#a-title-of-two-parts) [y](b.md#none)\n")
            with open(os.path.join(root, "docs/b.md"), "w", encoding="utf-8") as file:
                file.write("# B\n[x](a.md#a-title)\n")
            self.assertEqual(sorted(check_docs.check_anchors(root)),
                             ["docs/a.md: b.md has no part #none", "docs/b.md: a.md has no part #a-title"])


class CheckBlocks(unittest.TestCase):
    def violations(self, text, name="README.md"):
        with tempfile.TemporaryDirectory() as root:
            for path, content in {**TREE, name: text}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(content)
            return list(check_docs.check_blocks(root))

    def assert_good(self, language, code, above):
        self.assertEqual(self.violations(block(language, code, above)), [])

    def assert_bad(self, language, code, above, words):
        found = self.violations(block(language, code, above))
        self.assertEqual(len(found), 1, f"{above}: {code!r} gave {found}")
        self.assertIn(words, found[0])
        self.assertTrue(found[0].startswith("README.md:5: "), found[0])

    def test_quotations_pass(self):
        whole = TREE["examples/one/client.cc"]
        self.assert_good("cpp", whole, "The client, whole (`examples/one/client.cc`):")
        self.assert_good("cpp", "int main() {\n    return 0;\n",
                         "Of it (from\n`examples/one/client.cc`):")
        self.assert_good("proto", "message A {}\n", "So (from `examples/one/a.proto`):")
        self.assert_good("cmake", "endforeach()\n", "So (from `examples/one/CMakeLists.txt`):")
        self.assert_good("cpp", "#pragma once\n", "A header, whole (`examples/one/used.h`):")
        self.assert_good("cmake", "project(x)\n", "All of it (built by `tests/build_it.py`):")

    def test_text_and_commands_need_nothing(self):
        for language, code in ("sh", "make\n"), ("json", "{\n"), ("", "a table\n"):
            self.assert_good(language, code, "So:")

    def test_code_that_nothing_names_fails(self):
        for language in "cpp", "proto", "cmake":
            self.assert_bad(language, "x\n", "So:", "nothing compiles this block")
        self.assert_bad("cpp", "#pragma once\n", "whole (`examples/one/used.h`) is not here",
                        "nothing compiles this block")

    def test_what_names_another_block_does_not_count(self):
        text = block("cpp", "#pragma once\n", "A header, whole (`examples/one/used.h`):")
        found = self.violations(text.replace("After.\n", "```cpp\n#pragma once\n```\n"))
        self.assertEqual(len(found), 1, found)
        self.assertIn("nothing compiles this block", found[0])

    def test_a_quotation_is_exact(self):
        for code, above, words in [
            ("int main() {\n", "All, whole (`examples/one/client.cc`):", "it differs from"),
            ("int main() { }\n", "(from `examples/one/client.cc`):", "the block is not in"),
            ("int main() {\n}\n", "(from `examples/one/client.cc`):", "the block is not in"),
            ("return 0;\n", "(from `examples/one/client.cc`):", "the block is not in"),
            ("\n", "(from `examples/one/client.cc`):", "the block is not in"),
        ]:
            self.assert_bad("cpp", code, above, words)

    def test_what_is_quoted_is_compiled(self):
        for path, words in [
            ("examples/one/gone.cc", "does not exist"),
            ("examples/one/forgotten.cc", "nothing builds"),
            ("examples/one/unused.h", "nothing builds"),
            ("examples/two/CMakeLists.txt", "nothing builds"),
        ]:
            self.assert_bad("cpp", TREE.get(path, "x\n"), f"All, whole (`{path}`):", words)

    def test_a_builder_reads_the_document_and_builds_one_block(self):
        self.assert_bad("cmake", "x\n", "(built by `tests/gone.py`):", "does not exist")
        one = block("cmake", "x\n", "So (built by `tests/build_it.py`):")
        self.assertIn("does not read OTHER.md", self.violations(one, "OTHER.md")[0])
        self.assertEqual(len(self.violations(one + one)), 1)

    def test_languages_are_those_that_are_known(self):
        self.assert_bad("c++", "x\n", "(from `examples/one/client.cc`):", "a block is one of")
        self.assert_bad("", "int x;\n", "So:", "must name its language")
        self.assertIn("not 'unclosed'", self.violations("```cpp\nint x;\n")[0])


if __name__ == "__main__":
    unittest.main()
