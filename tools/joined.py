#!/usr/bin/env python3
"""Compiles all sources of a library as one, as a unity build with any grouping must do.

A unity build joins sources in batches, and one file more or less moves the borders of all later
batches. Equal names in unnamed namespaces of two files then collide in one build only.

usage: joined.py BUILD_DIRECTORY
"""
import os
import re
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import compile_commands

# Tests are not listed: they repeat names across files, and are joined only where they have own namespaces.
OURS = re.compile(r"(src|tools|examples)/")


def targets(commands: list[dict], root: str) -> dict[str, list[dict]]:
    """The compile commands of each target that joins sources of ours, by its name."""
    found = {}
    for entry in commands:
        path = os.path.relpath(os.path.join(entry["directory"], entry["file"]), root)
        target = re.search(r"CMakeFiles/(\w+)\.dir/", entry["command"])
        if target and OURS.match(path):
            found.setdefault(target[1], []).append(entry)
    return {target: own for target, own in found.items() if len(own) > 1}


def joined(own: list[dict]) -> subprocess.CompletedProcess:
    words = [word for word in shlex.split(own[0]["command"]) if os.path.basename(word) != "ccache"]
    for option in ("-o", "-c"):
        at = words.index(option)
        del words[at:at + 2]
    with tempfile.NamedTemporaryFile("w", suffix=".cc") as whole:
        whole.writelines(f'#include "{os.path.join(entry["directory"], entry["file"])}"\n' for entry in own)
        whole.flush()
        return subprocess.run([*words, "-fsyntax-only", "-w", whole.name], cwd=own[0]["directory"], text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)


def main() -> int:
    root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    found = targets(compile_commands.load(sys.argv[1]), root)
    if not found:
        sys.exit("joined: no sources of ours in the build")
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for target, run in zip(found, pool.map(joined, found.values())):
            if run.returncode:
                failed += 1
                print(run.stdout[:4000])
                print(f"joined: the sources of {target} do not compile as one")
    return 1 if failed else 0


sys.exit(main())
