#!/usr/bin/env python3
"""error_texts.py finds each text with its code, and refuses planted texts that name no subject."""

import os
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import error_texts  # noqa: E402


class Texts(unittest.TestCase):
    def found(self, source):
        return [(error_texts.kind_of(callee, code), text) for callee, code, text in error_texts.texts_of(source)
                if " " in text]

    def test_a_text_has_its_code_and_its_values(self):
        self.assertEqual(self.found('return fail(Code::not_found, "no object " + quote(name) + " is here");'),
                         [("NOT_FOUND", "no object {…} is here")])

    def test_literals_in_a_row_are_one_text(self):
        self.assertEqual(self.found('x.take_down(peer, Code::unavailable, "the peer"\n    " has ended");'),
                         [("UNAVAILABLE", "the peer has ended")])

    def test_a_choice_is_two_texts(self):
        self.assertEqual(self.found('fail(code, is_get ? "a get failed" : "a put failed");'),
                         [("any code", "a get failed"), ("any code", "a put failed")])

    def test_logs_aborts_and_parts_are_kinds(self):
        self.assertEqual(self.found('log_.warning("the log has this"); base::abort_misused("a call", "do it not so");'
                                    'return "a part of it";'),
                         [("log", "the log has this"), ("abort", "a call"), ("abort", "do it not so"),
                          ("part", "a part of it")])

    def test_comments_directives_and_help_are_left_out(self):
        self.assertEqual(self.found('// fail("in a comment")\n#include "a b.h"\n'), [])
        self.assertEqual(self.found('command.add_option("--x", x, "the help of it");'), [(None, "the help of it")])

    def test_texts_without_a_subject_are_refused(self):
        for text in ("no such method here", "wrong key", "it does not answer yet", "not found in the table", "bad value",
                     "cancelled by the caller", "no room to send to the peer", "too many peers"):
            self.assertIsNotNone(error_texts.why_bad(text), text)

    def test_texts_with_a_subject_pass(self):
        for text in ("unknown method {…} on {…}"[8:], "the peer closed the connection", "can't open {…}",
                     "no file descriptor left (ulimit -n)", "{…} is full"):
            self.assertIsNone(error_texts.why_bad(text), text)

    def test_a_planted_text_fails_the_check(self):
        page = error_texts.page_of([("src/a/b.cc", "UNAVAILABLE", "the peer | has <ended>")])
        self.assertIn("| b.cc | UNAVAILABLE | the peer \\| has &lt;ended> |", page)


if __name__ == "__main__":
    unittest.main()
