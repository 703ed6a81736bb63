#!/usr/bin/env python3
"""Every path, variable and test that the documentation names exists, and every package and
variable has its line.

    tools/check_docs.py [ROOT]
"""

import glob
import os
import re
import sys

TOPS = ("src/", "include/", "tests/", "tools/", "docs/", "bench/", "examples/", "proto/", "cmake/",
        "debian/", "spack/", ".ci/")
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
    packages = []
    for name in sorted(glob.glob(os.path.join(root, "tools/packages*.txt"))):
        with open(name, encoding="utf-8") as file:
            packages += [(line.split()[0], os.path.relpath(name, root))
                         for line in file if line.strip() and line[0] != "#"]
    try:
        with open(os.path.join(root, "docs/dependencies.md"), encoding="utf-8") as file:
            text = file.read()
    except FileNotFoundError:
        text = ""
    for package, name in packages:
        if f"`{package}`" not in text:
            yield f"docs/dependencies.md:1: {package} of {name} has no line"


def check_environment(root):
    """The variables that the code reads are those of the table, and the other way round."""
    variable = re.compile(r"\bWEFT_[A-Z_]+\b")
    code = os.path.join(root, "src/api/environment.cc")
    page = os.path.join(root, "docs/environment.md")
    if not os.path.exists(code):
        return
    with open(code, encoding="utf-8") as file:
        read = set(re.findall(r'"(WEFT_[A-Z_]+)"', file.read()))
    with open(page, encoding="utf-8") as file:
        listed = {name for line in file if line.startswith("|") for name in variable.findall(line)}
    for name in sorted(read - listed):
        yield f"docs/environment.md:1: {name} of src/api/environment.cc has no line"
    for name in sorted(listed - read):
        yield f"docs/environment.md:1: {name} is not read by src/api/environment.cc"


def titles_of(root, name):
    """The test cases of a file that a row of docs/semantics.md names; none: no such file."""
    found = glob.glob(os.path.join(root, "tests", "*", name + ".cc"))
    if not found:
        return None
    with open(found[0], encoding="utf-8") as file:
        return re.findall(r'(?:TEST_CASE|CONFORMANCE)\("((?:[^"\\]|\\.)*)"', file.read())


def check_named_tests(root):
    """A row of docs/semantics.md names tests: `file_test`: "a title", "the start of one…"."""
    page = os.path.join(root, "docs/semantics.md")
    if not os.path.exists(page):
        return
    with open(page, encoding="utf-8") as file:
        rows = [(number, line) for number, line in enumerate(file, 1) if line.startswith("| ")]
    for number, line in rows[1:]:
        cell = line.rstrip().rstrip("|").rsplit("|", 1)[1]
        parts = re.findall(r'`(\w+_test)`: ((?:"[^"]*"(?:, )?)+)', cell)
        if not parts:
            yield f"docs/semantics.md:{number}: no test is named"
        for name, quotes in parts:
            titles = titles_of(root, name)
            if titles is None:
                yield f"docs/semantics.md:{number}: there is no {name}.cc"
                continue
            for quote in re.findall(r'"([^"]*)"', quotes):
                whole = not quote.endswith("…")
                if not any(title == quote if whole else title.startswith(quote[:-1])
                           for title in titles):
                    yield f"docs/semantics.md:{number}: {name}.cc has no test \"{quote}\""


def check_whole_files(root):
    """"whole (`path`):" is followed by a block that is that file."""
    for document in documents(root):
        with open(document, encoding="utf-8") as file:
            text = file.read()
        for path, block in re.findall(r"whole \(`([^`]+)`\):\n+```\w*\n(.*?)```", text, re.S):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                if file.read() != block:
                    yield f"{os.path.relpath(document, root)}:1: its {path} is not the file"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    root = os.path.normpath(root)
    violations = [*check_paths(root), *check_packages(root), *check_environment(root),
                  *check_named_tests(root), *check_whole_files(root)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
