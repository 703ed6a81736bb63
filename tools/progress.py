#!/usr/bin/env python3
"""Runs a command, writes its output to a file, and shows its progress.

    tools/progress.py LABEL LOG COMMAND [ARGUMENT...]

Reads "[done/all]" of ninja and "done/all Test" of ctest. On a terminal one line is rewritten;
elsewhere a line is printed when half a minute has passed since the last one. Ends with the
command's exit status.
"""
import os
import re
import signal
import subprocess
import sys
import time

STEP = re.compile(rb"^\[(\d+)/(\d+)\]|^ *(\d+)/(\d+) Test +#")
PAUSE = 30.0  # Seconds between lines in a log.


class Progress:
    def __init__(self, label, out, now=time.monotonic):
        self.label, self.out, self.now = label, out, now
        self.started = self.last = now()
        self.on_terminal = out.isatty()

    def line(self, line):
        step = STEP.match(line)
        if not step:
            return
        done, everything = (int(group) for group in step.groups() if group)
        now = self.now()
        if now - self.last < (0.2 if self.on_terminal else PAUSE) and done != everything:
            return
        if not self.on_terminal and done == everything:
            return  # The command's own last line reports it.
        self.last = now
        seconds = int(now - self.started)
        text = f"{self.label}: {done} of {everything}, {seconds // 60}:{seconds % 60:02}"
        self.show(f"\r\x1b[K{text}" if self.on_terminal else text + "\n")

    def end(self):
        if self.on_terminal:
            self.show("\r\x1b[K")

    def show(self, text):
        try:
            self.out.write(text)
            self.out.flush()
        except OSError:  # No reader: the command continues.
            pass


def main():
    label, log, *command = sys.argv[1:]
    progress = Progress(label, sys.stdout)
    # The command gets the signal, too, perhaps before Popen() returns, and its exit status counts.
    signal.signal(signal.SIGINT, lambda *_: None)
    with open(log, "wb") as out, open(log, "rb") as read:
        # The command writes to the file itself: this script can neither delay it nor lose its output.
        child = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        status, unfinished = None, b""
        while status is None:
            try:
                status = child.wait(0.2)
            except subprocess.TimeoutExpired:
                pass
            *lines, unfinished = (unfinished + read.read()).split(b"\n")
            for line in lines:
                progress.line(line)
        progress.end()
    try:
        sys.stdout.flush()
    except OSError:  # Else the interpreter flushes again at exit, and its failure replaces the status.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
