#!/usr/bin/env python3
"""Runs the commands of README.md for a new project, exactly as written.

Needs build/release/bin/weft. Takes minutes where nothing is cached: a step of .ci/run, not a test of
`make test`.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = re.search(r"run by `tests/examples/readme.py`\):\n+```sh\n(.*?)```", text, re.S).group(1)
    with tempfile.TemporaryDirectory(prefix="weft-readme-") as place:
        # Replaces `greeter` in the checkout. Without the optimiser: optimised builds are tested
        # elsewhere.
        commands = re.sub(r"\bgreeter(?=[ /\n])", f"{place}/greeter", commands)
        done = subprocess.run(["sh", "-euc", commands], cwd=ROOT, text=True, stdout=subprocess.PIPE,
                              check=False, env={"CMAKE_BUILD_TYPE": "Debug",
                                                "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()),
                                                **os.environ})
        print("\n".join(done.stdout.splitlines()[-3:]))
    return 0 if done.returncode == 0 and done.stdout.endswith("all seeds hold\n") else 1


if __name__ == "__main__":
    sys.exit(main())
