#!/usr/bin/env python3
"""Runs clang-tidy over weft's own sources of one build, in parallel. Skips a file that passed before and
has not changed since: the file, weft's headers that it includes, its flags, .clang-tidy.

    tools/tidy.py BUILD_DIRECTORY [--times]

--times: checks every file again and prints the time of each, the longest first.
"""

import concurrent.futures
import hashlib
import json
import os
import re
import subprocess
import sys

import compile_commands

OURS = re.compile(r"^(?:src|tools)/.*\.cc$")


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


def sources_of(root, build, into):
    """(path, compile command, object) of each of weft's sources, largest first, so that the last file
    does not occupy one processor alone. Writes all commands to `into` without the g++ options that
    clang refuses."""
    entries = compile_commands.load(build)
    for entry in entries:
        entry["command"] = re.sub(r" -fno-gnu-unique| -Wno-subobject-linkage", "", entry["command"])
    with open(os.path.join(into, "compile_commands.json"), "w", encoding="utf-8") as file:
        json.dump(entries, file)
    found = {}
    for entry in entries:
        path = os.path.relpath(entry["file"], root)
        if OURS.match(path) and os.path.exists(entry["file"]):
            output = re.search(r" -o (\S+)", entry["command"])
            found[path] = (entry["command"], output.group(1) if output else "")
    order = sorted(found, key=lambda path: -os.path.getsize(os.path.join(root, path)))
    return [(path, *found[path]) for path in order]


def configurations_of(root, path):
    """Each .clang-tidy that applies to this file."""
    folder = os.path.dirname(path)
    while True:
        name = os.path.join(root, folder, ".clang-tidy")
        if os.path.exists(name):
            yield name
        if not folder:
            return
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


def main():
    root = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    build = os.path.abspath(sys.argv[1])
    times = "--times" in sys.argv[2:]
    stamps = os.path.join(build, "tidy")
    os.makedirs(stamps, exist_ok=True)
    headers = headers_of(build)

    def tidy(source):
        path, command, output = source
        files = {os.path.join(root, path), *configurations_of(root, path), *headers.get(output, [])}
        key = digest([command], files)
        stamp = os.path.join(stamps, path.replace("/", "_"))
        if os.path.exists(stamp) and not times:
            with open(stamp, encoding="utf-8") as file:
                if file.read() == key:
                    return path, 0, "", 0
        status, output, seconds = run(["clang-tidy", "-p", stamps, "--quiet",
                                       os.path.join(root, path)])
        if status == 0:
            with open(stamp, "w", encoding="utf-8") as file:
                file.write(key)
        return path, status, output, seconds

    failed, costs = 0, []
    sources = sources_of(root, build, stamps)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for path, status, output, seconds in pool.map(tidy, sources):
            costs.append((seconds, path))
            if status != 0:
                failed += 1
                print(output.rstrip() or f"{path}: clang-tidy failed", flush=True)
    for seconds, path in sorted(costs, reverse=True) if times else ():
        print(f"{seconds:7.1f} s  {path}")
    print(f"tidy: {len(sources) - failed} of {len(sources)} files are clean")
    return 1 if failed or not sources else 0


if __name__ == "__main__":
    sys.exit(main())
