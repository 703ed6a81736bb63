#!/usr/bin/env python3
"""Every path that the documentation names exists, and every package has its line.

    tools/check_docs.py [ROOT]
"""

import glob
import os
import re
import sys

TOPS = ("src/", "include/", "tests/", "tools/", "docs/", "bench/", "examples/", "proto/", "cmake/",
        ".ci/")
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FENCE = re.compile(r"^\s*```")


def documents(root):
    found = glob.glob(os.path.join(root, "*.md"))
    for top in ("docs", "examples", "bench", "tools", "src", "tests", "proto"):
        found += glob.glob(os.path.join(root, top, "**", "*.md"), recursive=True)
    return sorted(found)


def named_paths(line, fenced):
    """Of a line of Markdown: (path, whether it is relative to the document)."""
    if not fenced:
        for target in LINK.findall(line):
            if not re.match(r"[a-z+]+:", target):
                yield target, True
    spans = [line] if fenced else CODE.findall(line)
    for span in spans:
        for word in re.findall(r"[\w./*{},+-]+", span):
            word = word.rstrip(".,:")
            if word.startswith(TOPS):
                yield word, False


def exists(root, path):
    for one in expand(path):
        if not glob.glob(os.path.join(root, one)) and not glob.glob(os.path.join(root, one + ".*")):
            return False
    return True


def expand(path):
    found = re.search(r"\{([^{}]*)\}", path)
    if not found:
        return [path]
    return [one for choice in found.group(1).split(",")
            for one in expand(path[:found.start()] + choice + path[found.end():])]


def check_paths(root):
    for document in documents(root):
        name = os.path.relpath(document, root)
        if name == "docs/adr/0000-template.md":
            continue
        fenced = False
        with open(document, encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if FENCE.match(line):
                    fenced = not fenced
                    continue
                for path, relative in named_paths(line, fenced):
                    base = os.path.dirname(document) if relative else root
                    if not exists(base, path):
                        yield f"{name}:{number}: {path} does not exist"


def check_packages(root):
    with open(os.path.join(root, "tools/packages.txt"), encoding="utf-8") as file:
        packages = [line.split()[0] for line in file if line.strip() and line[0] != "#"]
    try:
        with open(os.path.join(root, "docs/dependencies.md"), encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    for package in packages:
        if f"`{package}`" not in text:
            yield f"docs/dependencies.md:1: {package} of tools/packages.txt has no line"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    root = os.path.normpath(root)
    violations = [*check_paths(root), *check_packages(root)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
