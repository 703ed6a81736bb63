#!/usr/bin/env python3
"""progress.py: the progress of ninja and ctest that it shows, the output that it keeps, its exit status."""
import io
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from progress import Progress

TOOL = pathlib.Path(__file__).resolve().with_name("progress.py")


class Terminal(io.StringIO):
    def isatty(self):
        return True


class Shown(unittest.TestCase):
    def shown(self, out, *lines):
        """The text shown for lines of (seconds since the start, line)."""
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

    def test_without_a_reader_nothing_is_shown(self):
        self.assertEqual(self.shown(NoReader(), (40, b"[1/2] Building\n")), "")

    def test_a_terminal_has_one_line_which_goes(self):
        self.assertEqual(self.shown(Terminal(), (1, b"[1/2] Building\n"), (1.1, b"[2/2] Linking\n")),
                         "\r\x1b[Kbuild: 1 of 2, 0:01\r\x1b[Kbuild: 2 of 2, 0:01\r\x1b[K")


class NoReader(io.StringIO):
    def write(self, text):
        raise BrokenPipeError


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

    def test_without_waiting_for_what_the_command_left_behind(self):
        status, log = self.ends("sleep 50 & echo $!")
        os.kill(int(log), signal.SIGTERM)
        self.assertEqual(status, 0)

    def test_after_an_interrupt_the_command_says_how_it_ends(self):
        says = "trap 'i=0; while [ $((i += 1)) -lt 20000 ]; do echo 0123456789; done; exit 7' INT; "
        with tempfile.TemporaryDirectory() as place:
            log = pathlib.Path(place) / "log"
            # A process group of its own, as on a terminal.
            with subprocess.Popen([sys.executable, TOOL, "test", log, "sh", "-c",
                                   says + "echo begun; while :; do read -r _ || exit 8; done"],
                                  stdin=subprocess.PIPE, start_new_session=True) as tool:
                end = time.monotonic() + 30
                while not (log.exists() and b"begun" in log.read_bytes()):
                    self.assertLess(time.monotonic(), end)
                os.killpg(tool.pid, signal.SIGINT)
                tool.stdin.write(b"\n")
                tool.stdin.flush()
                self.assertEqual(tool.wait(60), 7)
            self.assertGreater(log.stat().st_size, 200_000)


if __name__ == "__main__":
    unittest.main()
