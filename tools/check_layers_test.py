#!/usr/bin/env python3
"""A clean tree passes check_layers.py; each kind of violation fails with its own message."""

import glob
import os
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_layers  # noqa: E402

CLEAN = {
    "include/weft/time.h": "#include <chrono>\n#include <cstdint>\n",
    "include/weft/status.h": "#include <string>\n\n#include <weft/time.h>\n",
    "include/weft/protobuf.h": "#include <google/protobuf/message.h>\n#include <weft/bulk.pb.h>\n",
    "include/weft/asio.h": "#include <boost/asio.hpp>\n#include <weft/asio/driver.h>\n",
    "include/weft/asio/driver.h": "#include <boost/asio.hpp>\n",
    "src/base/steady_clock.cc": "auto x = std::chrono::steady_clock::now();\n",
    "src/base/log.cc": "#include <spdlog/spdlog.h>\n",
    "src/base/timer_wheel.h": '#include <array>\n#include "base/intrusive_list.h"\n',
    "src/na/sm/ring.cc": '#include <sys/mman.h>\n#include "na/sm/ring.h"\n#include "base/log.h"\n',
    "src/na/ofi/fabric.cc": "#include <rdma/fabric.h>\n#include <rdma/fi_cm.h>\n",
    "src/rpc/client.cc": '#include "bulk/bulk.h"\n#include "rpc/client.h"\n',
    "src/api/runtime_impl.cc": '#include "na/sm/sm.h"\n#include "coll/engine.h"\n',
    "tests/CMakeLists.txt": "weft_tests(unit)\nadd_test(x tools/a_test.py)\n",
    "tests/unit/a_test.cc": 'TEST_CASE("a title, with a comma") {\n}\n',
    "tools/a_test.py": "# TODO(#7): more.\n",
    "tools/size_exceptions.txt": "# PATH LINES REASON\n",
}


def long_function(lines, head="void f() {"):
    return head + "\n" + "    x();\n" * (lines - 2) + "}\n"


class CheckLayers(unittest.TestCase):
    def violations(self, **changes):
        with tempfile.TemporaryDirectory() as root:
            for path, text in {**CLEAN, **changes.pop("files", {})}.items():
                full = os.path.join(root, path)
                os.makedirs(os.path.dirname(full), exist_ok=True)
                with open(full, "w", encoding="utf-8") as file:
                    file.write(text)
            return check_layers.Checker(root).run()

    def assert_bad(self, path, text, words):
        found = self.violations(files={path: text})
        self.assertEqual(len(found), 1, f"{path}: {text!r} gave {found}")
        self.assertIn(words, found[0])
        self.assertTrue(found[0].startswith(path), found[0])

    def test_each_file_that_the_checker_lists_exists(self):
        root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
        listed = [*check_layers.PURE, *check_layers.GENERATED, *check_layers.ASKS_THE_CLOCK, *check_layers.NAMES_PROVIDERS,
                  *(pattern for files in check_layers.THIRD_PARTY.values() for pattern in files)]
        for pattern in listed:
            self.assertTrue(glob.glob(os.path.join(root, pattern)), pattern)

    def test_a_clean_tree_passes(self):
        self.assertEqual(self.violations(), [])

    def test_includes_that_break_the_law(self):
        for path, header, words in [
            ("src/base/x.h", '"na/provider.h"', "base is below na"),
            ("src/na/x.cc", '"core/context.h"', "na is below core"),
            ("src/bulk/x.cc", '"rpc/client.h"', "bulk is below rpc"),
            ("src/group/x.cc", '"coll/tree.h"', "group is below coll"),
            ("src/coll/x.cc", '"na/provider.h"', "through rpc"),
            ("src/rpc/x.cc", '"client.h"', "a path from src"),
            ("src/misc/x.cc", '"base/log.h"', "not a layer"),
            ("src/na/sm/x.cc", '"na/ofi/ofi.h"', "private to its provider"),
            ("src/na/registry.cc", '"na/sm/sm.h"', "private to its provider"),
            ("src/rpc/x.cc", '"na/sm/sm.h"', "private to its provider"),
            ("src/rpc/x.cc", "<spdlog/spdlog.h>", "only src/base/log.cc"),
            ("src/na/sm/x.cc", "<rdma/fabric.h>", "only src/na/ofi"),
            ("src/na/ofi/x.cc", "<infiniband/verbs.h>", "only src/na/verbs"),
            ("src/rpc/x.cc", "<google/protobuf/message.h>", "only include/weft/protobuf.h"),
            ("src/core/x.cc", "<boost/asio.hpp>", "only include/weft/asio.h"),
            ("src/rpc/x.cc", "<folly/Function.h>", "does not list"),
            ("include/weft/x.h", '"base/log.h"', "nothing of src"),
            ("include/weft/x.h", "<unistd.h>", "only the standard library"),
            ("include/weft/x.h", "<sys/types.h>", "may"),
            ("include/weft/x.h", "<weft/bulk.pb.h>", "only in protobuf.h"),
            ("include/weft/x.h", "<boost/asio.hpp>", "only include/weft/asio.h"),
            ("include/weft/x.h", "<weft/asio.h>", "pull in Boost"),
            ("src/na/tcp/x.cc", "<boost/asio.hpp>", "only include/weft/asio.h"),
            ("examples/storage/x.cc", "<boost/asio.hpp>", "only include/weft/asio.h"),
            ("src/coll/tree.cc", "<thread>", "pure"),
            ("src/base/timer_wheel.cc", '"base/log.h"', "pure"),
            ("src/na/address.cc", "<netinet/in.h>", "pure"),
        ]:
            with self.subTest(path=path, header=header):
                self.assert_bad(path, f"#include {header}\n", words)

    def test_time_and_chance_are_injected(self):
        for path, text, words in [
            ("src/rpc/x.cc", "auto t = std::chrono::steady_clock::now();\n", "reads a clock"),
            ("src/na/sm/x.cc", "    usleep (5);\n", "reads a clock"),
            ("src/core/x.cc", "std::random_device seed;\n", "random"),
            ("src/core/x.cc", "int x = rand();\n", "random"),
            ("src/coll/tree.cc", "auto t = clock.now();\n", "pure"),
        ]:
            with self.subTest(text=text):
                self.assert_bad(path, text, words)
        self.assertEqual(self.violations(files={
            "src/rpc/x.cc": '// steady_clock::now() would be wrong\nlog("usleep(5)");\n'}), [])

    def test_todos_name_an_issue(self):
        self.assert_bad("src/rpc/x.cc", "// TODO: later\n", "TODO without an issue")
        self.assert_bad("tools/x.sh", "# FIXME(me)\n", "TODO without an issue")
        self.assertEqual(self.violations(files={"src/rpc/x.cc": "// TODO(me, #12): later\n"}), [])

    def test_sizes(self):
        self.assert_bad("src/rpc/x.cc", "int x;\n" * 501, "501 lines, over 500")
        self.assert_bad("include/weft/x.h", "int x;\n" * 301, "301 lines, over 300")
        self.assertEqual(self.violations(files={"src/rpc/x.cc": long_function(70)}), [])
        self.assert_bad("src/rpc/x.cc", long_function(71), "f: 71 lines, over 70")
        head = "X::X(int a)\n    : a_(a),\n      b_(0) {"
        self.assert_bad("src/rpc/x.cc", long_function(71, head), "X::X")
        self.assert_bad("src/rpc/x.cc", long_function(71, "void f(int a,\n       int b) {"), "f:")

    def test_exceptions_may_only_shrink(self):
        listed = "tools/size_exceptions.txt"
        source = {"src/rpc/x.cc": "int x;\n" * 510}
        for entry, words in [
            ("src/rpc/x.cc 510 why", None),
            ("src/rpc/x.cc 505 why", "grew from 505 to 510"),
            ("src/rpc/x.cc 600 why", "shrank to 510"),
            ("src/rpc/x.cc 510", "expected PATH"),
        ]:
            with self.subTest(entry=entry):
                found = self.violations(files={**source, listed: entry + "\n"})
                if words is None:
                    self.assertEqual(found, [])
                else:
                    self.assertIn(words, "\n".join(found))
        self.assertIn("needs no exception",
                      "\n".join(self.violations(files={listed: "src/rpc/y.cc 510 why\n"})))

    def test_tests_that_would_not_run(self):
        self.assert_bad("tests/soak/x_test.cc", "", "does not build it")
        self.assert_bad("src/rpc/x_test.cc", "", "does not build it")
        self.assert_bad("tests/unit/x.cc", "", "nothing builds it")
        self.assert_bad("tools/b_test.py", "", "does not run it")
        self.assert_bad("tests/unit/x_test.cc", 'TEST_CASE("one; two") {\n}\n', "misread")
        self.assert_bad("tests/unit/x_test.cc", 'CONFORMANCE(\n    "one; two") {\n}\n', "misread")


if __name__ == "__main__":
    unittest.main()
