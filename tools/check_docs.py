#!/usr/bin/env python3
"""Every path, heading, variable and test that the documentation names exists, every package and variable
has its line, and code in a document is compiled.

    tools/check_docs.py [ROOT]

A block of cpp, proto or cmake stands below a paragraph that ends with one of

    whole (`examples/a/b.cc`):        the block is that file
    (from `examples/a/b.cc`):         the block is consecutive lines of that file, unchanged
    (built by `tests/a/b.py`):        that test extracts the block and builds it
"""

import glob
import os
import re
import sys

TOPS = ("src/", "include/", "tests/", "tools/", "docs/", "bench/", "examples/", "services/", "proto/", "cmake/",
        "debian/", "spack/", ".ci/")
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
ANCHOR = re.compile(r"\]\(([^)#\s:]*)#([^)\s]+)\)")
FENCE = re.compile(r"^\s*```")
COMPILED = {"cmake", "cpp", "proto"}
OTHER = {"", "json", "sh"}


def documents(root):
    found = glob.glob(os.path.join(root, "*.md"))
    for top in ("docs", "examples", "services", "bench", "tools", "src", "tests", "proto"):
        found += glob.glob(os.path.join(root, top, "**", "*.md"), recursive=True)
    return sorted(found)


def named_paths(line, fenced):
    """Yields (path, whether it is relative to the document) for a line of Markdown."""
    if not fenced:
        for target in LINK.findall(line):
            if not re.match(r"[a-z+]+:", target):
                yield target, True
    spans = [line] if fenced else CODE.findall(line)
    for span in spans:
        for word in re.findall(r"[\w./*{},+-]+", span):
            word = word.rstrip(".,:")
            if word.startswith(TOPS) and not word.endswith("_test"):  # Short for a file of tests/unit.
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


def anchors_of(text):
    """The anchors of a document's headings, as GitHub and the site make them."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.M | re.S)
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", title.lower()))
            for title in re.findall(r"^#+ (.*?)\s*$", text, flags=re.M)}


def check_anchors(root):
    """A link to a part of a document names one of its headings."""
    for document in documents(root):
        text = read(document)
        for path, anchor in ANCHOR.findall(text):
            target = os.path.join(os.path.dirname(document), path) if path else document
            if target.endswith(".md") and os.path.isfile(target) and anchor not in anchors_of(read(target)):
                yield f"{os.path.relpath(document, root)}: {path or 'this page'} has no part #{anchor}"


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
    """The table has exactly the variables that the code reads."""
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
    """The titles of the test cases in the file with this end of its path; None: no such file, or several."""
    found = glob.glob(os.path.join(root, "tests", "**", name + ".cc"), recursive=True)
    if len(found) != 1:
        return None
    with open(found[0], encoding="utf-8") as file:
        return re.findall(r'(?:TEST_CASE|CONFORMANCE(?:_\w+)?)\(\s*"((?:[^"\\]|\\.)*)"', file.read())


def promises(text):
    """Yields (line number, text in one line) for each bullet; its lines are indented by two spaces."""
    number, bullet = 0, []
    for at, line in enumerate(text.splitlines() + [""], 1):
        if bullet and line.startswith("  "):
            bullet.append(line.strip())
            continue
        if bullet:
            yield number, " ".join(bullet)
        number, bullet = at, [line[2:]] if line.startswith("- ") else []


def check_named_tests(root):
    """Each bullet of docs/semantics.md names tests: `folder/file_test`: "a title", "start of a title…"."""
    page = os.path.join(root, "docs/semantics.md")
    if not os.path.exists(page):
        return
    found = list(promises(read(page)))
    if not found:
        yield "docs/semantics.md: no bullet names a test"
    for number, bullet in found:
        parts = re.findall(r'`([\w/-]+_test)`: ((?:"[^"]*"(?:, )?)+)', bullet)
        if not parts:
            yield f"docs/semantics.md:{number}: no test is named"
        for name, quotes in parts:
            titles = titles_of(root, name)
            if titles is None:
                yield f"docs/semantics.md:{number}: {name}.cc is no file of tests/, or several"
                continue
            for quote in re.findall(r'"([^"]*)"', quotes):
                whole = not quote.endswith("…")
                if not any(title == quote if whole else title.startswith(quote[:-1])
                           for title in titles):
                    yield f"docs/semantics.md:{number}: {name}.cc has no test \"{quote}\""


def blocks(text):
    """Yields (line number, language, lines, paragraph above) for each block of a document."""
    above, ended, block = [], True, None
    for number, line in enumerate(text.splitlines(), 1):
        fence = re.match(r"\s*(?:```|~~~)(.*)", line)
        if block:
            if fence and not fence.group(1).strip():
                yield *block, " ".join(above)
                above, ended, block = [], True, None
            else:
                block[2].append(line)
        elif fence:
            block = (number, fence.group(1).strip(), [])
        else:
            if line.strip():
                above = [line.strip()] if ended else [*above, line.strip()]
            ended = not line.strip()
    if block:
        yield block[0], "unclosed", block[2], ""


def why_not_built(root, path):
    """None when the build compiles the file, else the reason. The CMakeLists.txt of its folder must
    name a source or its stem; a .cc file in its folder must include a header; the parent folder's
    CMakeLists.txt must add the folder of a CMakeLists.txt."""
    if not os.path.isfile(os.path.join(root, path)):
        return f"{path} does not exist"
    folder, name = os.path.split(path)
    user = os.path.join(folder, "CMakeLists.txt")
    if name == "CMakeLists.txt":
        folder, name = os.path.split(folder)
        user = os.path.join(folder, "CMakeLists.txt")
        word = rf"add_subdirectory\({re.escape(name)}\)"
    elif name.endswith(".h"):
        word = re.escape(f'#include "{name}"')
        users = sorted(glob.glob(os.path.join(root, folder, "*.cc")))
        user = next((one for one in users if re.search(word, read(one))), user)
    else:
        word = rf"\b{re.escape(os.path.splitext(name)[0])}\b"
    user = os.path.join(root, user)
    if not os.path.isfile(user) or not re.search(word, read(user)):
        return f"nothing builds {path}"
    return None


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def why_not_covered(root, document, lines, above):
    """None when the paragraph above a block names what compiles it, and that holds; else why not."""
    named = re.search(r"(?:(whole) \(|\((from|built by) )`([^`]+)`\):$", above)
    if not named:
        return "nothing compiles this block: write \"whole (`path`):\", \"(from `path`):\" or " \
               "\"(built by `test`):\" above it"
    how, path = named[1] or named[2], named[3]
    if how == "built by":
        if not os.path.isfile(os.path.join(root, path)):
            return f"{path} does not exist"
        if os.path.basename(document) not in read(os.path.join(root, path)):
            return f"{path} does not read {os.path.basename(document)}"
        return None
    block = "".join(line + "\n" for line in lines)
    why = why_not_built(root, path)
    if why:
        return why
    if how == "whole":
        return None if read(os.path.join(root, path)) == block else f"it differs from {path}"
    # Consecutive lines of the file, unchanged.
    return None if block.strip() and "\n" + block in "\n" + read(os.path.join(root, path)) \
        else f"the block is not in {path}"


def check_blocks(root):
    """Code in a document quotes code that is compiled, or a test extracts it from the document and
    compiles it."""
    for document in documents(root):
        name = os.path.relpath(document, root)
        builders = set()
        for number, language, lines, above in blocks(read(document)):
            if language in COMPILED:
                why = why_not_covered(root, name, lines, above)
                builder = re.search(r"\(built by .*$", above)
                if builder and not why:
                    if builder[0] in builders:
                        why = "a test builds only one block of a document"
                    builders.add(builder[0])
                if why:
                    yield f"{name}:{number}: {why}"
            elif not language and any(line.rstrip().endswith((";", "{")) for line in lines):
                yield f"{name}:{number}: a block of code must name its language"
            elif language not in OTHER:
                yield f"{name}:{number}: a block is one of {', '.join(sorted(COMPILED | OTHER))}" \
                      f" or has no language, not '{language}'"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    root = os.path.normpath(root)
    violations = [*check_paths(root), *check_anchors(root), *check_packages(root), *check_environment(root),
                  *check_named_tests(root), *check_blocks(root)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
