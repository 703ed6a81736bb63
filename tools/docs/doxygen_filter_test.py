#!/usr/bin/env python3
"""Comments of declarations become Doxygen's; those inside of functions and internal headers do not."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import doxygen_filter  # noqa: E402


def filtered(body, top=""):
    return doxygen_filter.converted(f"{top}#pragma once\nnamespace weft {{\n{body}}}  // namespace weft\n", "weft/a.h")


class Filter(unittest.TestCase):
    def test_comments_above_and_behind_declarations_are_of_doxygen(self):
        text = filtered("// A type.\nstruct A {\n    int b = 0;  // A member.\n};\n", "// The file.\n")
        for line in ("/// \\file weft/a.h", "/// The file.", "/// A type.", "    int b = 0;  ///< A member."):
            self.assertIn(line, text.splitlines())

    def test_comments_inside_of_functions_stay(self):
        text = filtered("inline void f() {\n    // Later.\n    g();  // Now.\n}\n"
                        "struct A {\n    A() : b{1} {\n        // Inside.\n    }\n    // After.\n    void c();\n};\n")
        for line in ("    // Later.", "    g();  // Now.", "        // Inside.", "    /// After."):
            self.assertIn(line, text.splitlines())

    def test_code_and_titles_have_a_form_of_their_own(self):
        text = filtered("// Use:\n//\n//     f(a);\n//\n// Thread: any.\nvoid f(int);\n")
        self.assertIn("/// \\code{.cpp}\n/// f(a);\n/// \\endcode\n", text)
        self.assertIn("/// <b>Thread:</b> any.\n", text)

    def test_what_doxygen_would_read_as_a_command_is_escaped(self):
        self.assertIn("/// A \\<b\\> \\@c `<d>`\n", filtered("// A <b> @c `<d>`\nvoid f();\n"))

    def test_headlines_and_friends_are_left_out(self):
        text = filtered("struct A {\n    // ---- calls ----\n    void b();\n    friend class C;\n};\n")
        self.assertNotIn("calls", text)
        self.assertNotIn("friend", text)

    def test_a_header_without_public_names_is_empty(self):
        self.assertEqual(doxygen_filter.converted("// Internal.\nnamespace weft::detail {\n}\n", "weft/a.h"), "")


if __name__ == "__main__":
    unittest.main()
