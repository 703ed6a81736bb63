#!/usr/bin/env python3
"""greetings.py PROGRAM LINE...: an example of docs/asio.md greets with these lines, in any order, and ends with a signal."""

import os
import subprocess
import sys
import tempfile


def main():
    expected = sorted(line + "\n" for line in sys.argv[2:])
    with tempfile.TemporaryDirectory() as names:  # The directory of sm's names: no other process
                                                  # uses this one.
        os.environ["XDG_RUNTIME_DIR"] = names
        with subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE, text=True) as program:
            said = [program.stdout.readline() for _ in expected]
            program.terminate()
            said += program.stdout.readlines()
    print("".join(said), end="")
    return 0 if sorted(said) == expected and program.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
