#!/usr/bin/env python3
"""Runs a command whose output goes to a file, and shows how far it is.

    tools/progress.py LABEL LOG COMMAND [ARGUMENT...]

Reads "[done/all]" of ninja and "done/all Test" of ctest. On a terminal one line is rewritten;
elsewhere a line is printed when half a minute has passed since the last one. Ends with the
command's exit status.
"""
import re
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
            return  # The command's own last line says so.
        self.last = now
        seconds = int(now - self.started)
        text = f"{self.label}: {done} of {everything}, {seconds // 60}:{seconds % 60:02}"
        self.out.write(f"\r\x1b[K{text}" if self.on_terminal else text + "\n")
        self.out.flush()

    def end(self):
        if self.on_terminal:
            self.out.write("\r\x1b[K")
            self.out.flush()


def main():
    label, log, *command = sys.argv[1:]
    progress = Progress(label, sys.stdout)
    with open(log, "wb") as file, subprocess.Popen(command, stdout=subprocess.PIPE,
                                                   stderr=subprocess.STDOUT) as child:
        try:
            for line in child.stdout:
                file.write(line)
                file.flush()
                progress.line(line)
        except KeyboardInterrupt:
            pass  # The command has got the signal, too.
        status = child.wait()
    progress.end()
    return status if status >= 0 else 128 - status


if __name__ == "__main__":
    sys.exit(main())
