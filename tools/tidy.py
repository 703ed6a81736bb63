#!/usr/bin/env python3
"""Runs clang-tidy over weft's own sources of one build: all sources of a target as one, targets in parallel.

Most of what a source costs is what it includes: one by one, all sources take eight times as long. As one
they must compile anyway: a unity build joins sources in batches, one file more or less moves the borders
of all later batches, and equal names in unnamed namespaces of two files then collide in one build only.

Skips a target that passed before and has not changed since: its sources, weft's headers that they include,
their flags, .clang-tidy.

    tools/tidy.py BUILD_DIRECTORY [--times]

--times: checks every target again and prints the time of each, the longest first.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

import compile_commands

OURS = re.compile(r"(?:src|tools|services|examples|tests/simulation)/.*\.cc$")
# g++ options that clang refuses.
REFUSED = re.compile(r" -fno-gnu-unique| -Wno-subobject-linkage")


def headers_of(build):
    """Object file -> the files it was made from, as ninja recorded them."""
    listed = subprocess.run(["ninja", "-C", build, "-t", "deps"], capture_output=True, text=True,
                            check=True).stdout
    found, current = {}, None
    for line in listed.splitlines():
        if line.startswith("    "):
            if current is not None and not line.startswith("    /usr/"):
                current.append(os.path.join(build, line.strip()))
        elif ": #deps" in line:
            current = found.setdefault(line.split(": #deps")[0], [])
    return found


def targets_of(root, build):
    """Target -> the compile commands of weft's own sources in it, the largest target first, so that it does
    not occupy one processor alone at the end."""
    found = {}
    for entry in compile_commands.load(build):
        path = os.path.relpath(entry["file"], root)
        target = re.search(r"CMakeFiles/(\w+)\.dir/", entry["command"])
        if target and OURS.match(path) and os.path.exists(entry["file"]):
            found.setdefault(target[1], []).append({**entry, "path": path})
    size = {target: sum(os.path.getsize(entry["file"]) for entry in own) for target, own in found.items()}
    return dict(sorted(found.items(), key=lambda item: -size[item[0]]))


def configuration_of(root, paths):
    """The .clang-tidy files that apply to what these paths have in common, the nearest first."""
    folder, found = os.path.commonpath([os.path.dirname(path) for path in paths]), []
    while True:
        name = os.path.join(root, folder, ".clang-tidy")
        if os.path.exists(name):
            found.append(name)
        if not folder:
            return found
        folder = os.path.dirname(folder)


def run(command):
    """(status, standard output, processor seconds) of a command."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                          text=True) as process:
        output = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, output, usage.ru_utime + usage.ru_stime


def digest(parts, files):
    total = hashlib.sha256("\0".join(parts).encode())
    for name in sorted(files):
        total.update(name.encode())
        with open(name, "rb") as file:
            total.update(file.read())
    return total.hexdigest()


def written(name, text):
    with open(name, "w", encoding="utf-8") as file:
        file.write(text)
    return name


def main():
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    build = os.path.abspath(sys.argv[1])
    times = "--times" in sys.argv[2:]
    stamps = os.path.join(build, "tidy")
    os.makedirs(stamps, exist_ok=True)
    headers = headers_of(build)
    targets = targets_of(root, build)
    # One source that includes all of a target, compiled by the command of the first.
    wholes = {target: written(os.path.join(stamps, f"{target}.cc"),
                              "".join(f'#include "{entry["file"]}"\n' for entry in own))
              for target, own in targets.items()}
    written(os.path.join(stamps, "compile_commands.json"), json.dumps(
        [{"directory": own[0]["directory"], "file": wholes[target],
          "command": REFUSED.sub("", own[0]["command"]).replace(own[0]["file"], wholes[target])}
         for target, own in targets.items()]))

    def tidy(target):
        own = targets[target]
        configurations = configuration_of(root, [entry["path"] for entry in own])
        outputs = {re.search(r" -o (\S+)", entry["command"])[1] for entry in own}
        files = {entry["file"] for entry in own}.union(configurations, *(headers.get(o, []) for o in outputs))
        key = digest([own[0]["command"]], files)
        stamp = os.path.join(stamps, target)
        if os.path.exists(stamp) and not times:
            with open(stamp, encoding="utf-8") as file:
                if file.read() == key:
                    return 0, "", 0
        status, output, seconds = run(["clang-tidy", "-p", stamps, "--quiet", "--config-file", configurations[0],
                                       "--checks=-bugprone-suspicious-include", wholes[target]])
        if status == 0:
            written(stamp, key)
        return status, output, seconds

    failed, costs = 0, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for target, (status, output, seconds) in zip(targets, pool.map(tidy, targets)):
            costs.append((seconds, target))
            if status != 0:
                failed += 1
                print(output.rstrip()[:20000])
                print(f"tidy: the sources of {target} are not clean, or do not compile as one", flush=True)
    for seconds, target in sorted(costs, reverse=True) if times else ():
        print(f"{seconds:7.1f} s  {target}")
    print(f"tidy: {len(targets) - failed} of {len(targets)} targets are clean")
    return 1 if failed or not targets else 0


if __name__ == "__main__":
    sys.exit(main())
