#!/usr/bin/env python3
"""progress.py: what it shows of ninja and ctest, what it keeps, and how it ends."""
import io
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

from progress import Progress

TOOL = pathlib.Path(__file__).resolve().with_name("progress.py")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Shown(unittest.TestCase):
    def shown(self, out, *lines):
        """Of (seconds since the start, line)."""
        time = 0.0
        progress = Progress("build", out, lambda: time)
        for time, line in lines:
            progress.line(line)
        progress.end()
        return out.getvalue()

    def test_a_log_gets_a_line_each_half_minute(self):
        self.assertEqual(self.shown(io.StringIO(), (1, b"[1/400] Building a.cc.o\n"),
                                    (31, b"[9/400] Building b.cc.o\n"), (45, b"[10/400] Linking\n"),
                                    (90, b"a warning\n"), (95.5, b"[60/400] Building c.cc.o\n"),
                                    (99, b"[400/400] Linking\n")),
                         "build: 9 of 400, 0:31\nbuild: 60 of 400, 1:35\n")

    def test_lines_of_ctest(self):
        self.assertEqual(self.shown(io.StringIO(), (40, b"  7/99 Test  #12: a test ... Passed\n")),
                         "build: 7 of 99, 0:40\n")

    def test_a_terminal_has_one_line_which_goes(self):
        self.assertEqual(self.shown(Terminal(), (1, b"[1/2] Building\n"), (1.1, b"[2/2] Linking\n")),
                         "\r\x1b[Kbuild: 1 of 2, 0:01\r\x1b[Kbuild: 2 of 2, 0:01\r\x1b[K")


class Ends(unittest.TestCase):
    def ends(self, command):
        with tempfile.TemporaryDirectory() as place:
            log = os.path.join(place, "log")
            done = subprocess.run([sys.executable, TOOL, "test", log, "sh", "-c", command],
                                  capture_output=True, timeout=60, check=False)
            return done.returncode, pathlib.Path(log).read_bytes()

    def test_as_the_command_does_with_all_of_its_output(self):
        self.assertEqual(self.ends("echo out; echo error >&2; exit 3"), (3, b"out\nerror\n"))
        self.assertEqual(self.ends("printf '\\377'"), (0, b"\xff"))
        self.assertEqual(self.ends("kill -TERM $$"), (128 + 15, b""))


if __name__ == "__main__":
    unittest.main()
