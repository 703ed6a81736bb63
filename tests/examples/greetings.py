#!/usr/bin/env python3
"""greetings.py PROGRAM: the example of docs/asio.md greets itself and ends with a signal."""

import os
import subprocess
import sys
import tempfile


def main():
    with tempfile.TemporaryDirectory() as names:  # The directory of sm's names: no other process
                                                  # uses this one.
        os.environ["XDG_RUNTIME_DIR"] = names
        with subprocess.Popen([sys.argv[1]], stdout=subprocess.PIPE, text=True) as program:
            said = [program.stdout.readline() for _ in range(3)]
            program.terminate()
            said += program.stdout.readlines()
    print("".join(said), end="")
    return 0 if said == ["hello asio\n"] * 3 and program.returncode == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
