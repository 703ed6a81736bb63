#!/usr/bin/env python3
"""A planted pronoun, private term and unknown public type fail check_language.py; plain prose passes."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check_language  # noqa: E402

GLOSSARY = "| `Known` | A type of the program. |\n"


class CheckLanguage(unittest.TestCase):
    def test_plain_prose_passes(self):
        self.assertEqual(check_language.violations("a.cc", "// The parent drops the request.\n"), [])

    def test_pronouns_are_refused_with_file_and_line(self):
        for text in ("// he will not come again", "// Whoever calls", 'fail("nobody answers")', "TEST_CASE(\"who leads\")"):
            found = check_language.violations("src/a.cc", "\n" + text + "\n")
            self.assertEqual(len(found), 1, text)
            self.assertTrue(found[0].startswith("src/a.cc:2: "), found)

    def test_names_of_users_and_fields_pass(self):
        for text in ("constexpr uid_t nobody = 65534;", 'out.set_text("hello " + in.who());'):
            self.assertEqual(check_language.violations("a.cc", text), [], text)

    def test_public_types_have_a_line_in_the_glossary(self):
        header = "namespace weft {\n\nclass Known {\n};\nstruct Unknown {\n};\nclass Forward;\n}  // namespace weft\n"
        found = check_language.missing_terms("include/weft/a.h", header, GLOSSARY)
        self.assertEqual(found, ["include/weft/a.h:5: the public type Unknown is not in docs/glossary.md"])

    def test_internal_types_need_none(self):
        header = "namespace weft::detail {\nstruct Unknown {\n};\n}  // namespace weft::detail\n"
        self.assertEqual(check_language.missing_terms("include/weft/a.h", header, GLOSSARY), [])

    def test_private_terms_are_refused_in_public_headers_and_headings(self):
        for path, text in (("include/weft/a.h", "// What a rider carries."), ("docs/a.md", "## Strangers")):
            found = check_language.missing_terms(path, text, GLOSSARY)
            self.assertEqual(len(found), 1, text)
            self.assertIn("is no term of docs/glossary.md", found[0])


if __name__ == "__main__":
    unittest.main()
