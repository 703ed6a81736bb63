#!/usr/bin/env python3
"""Compiles all sources of a library as one, as a unity build with any grouping must do.

A unity build joins sources in batches, and one file more or less moves the borders of all later
batches. Equal names in unnamed namespaces of two files then collide in a sanitizer build, but in no
other build.

usage: joined.py BUILD_DIRECTORY
"""
import json
import os
import shlex
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

# Tests are not listed: they repeat names across files, and are joined only where they have own namespaces.
TARGETS = ["weft_base", "weft_na", "weft_core", "weft_rpc", "weft_bulk", "weft_api", "weft_group", "weft_coll",
           "storage", "weft_tool"]


def joined(target: str, commands: list[dict]) -> subprocess.CompletedProcess:
    own = [entry for entry in commands if f"CMakeFiles/{target}.dir/" in entry["command"]]
    if not own:
        sys.exit(f"joined: no sources of {target} in the build")
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
    with open(os.path.join(sys.argv[1], "compile_commands.json"), encoding="utf-8") as file:
        commands = json.load(file)
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for target, run in zip(TARGETS, pool.map(lambda target: joined(target, commands), TARGETS)):
            if run.returncode:
                failed += 1
                print(run.stdout[:4000])
                print(f"joined: the sources of {target} do not compile as one")
    return 1 if failed else 0


sys.exit(main())
