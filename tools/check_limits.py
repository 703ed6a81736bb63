#!/usr/bin/env python3
"""Checks that docs/limits.md and docs/environment.md state the numbers of the code.

A row of docs/limits.md names the constants of the code in a comment, <!-- rpc/server.h:session_expires_after -->, by file
below src (or include/weft, examples/storage) and name; the row contains their values. Its last cell says which option
sets the limit, or why there is none. The defaults in docs/environment.md are those of weft/options.h.

    tools/check_limits.py [ROOT]
"""

import os
import re
import sys

FOLDERS = ("src", "include/weft", "examples/storage", "services/storage")
UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
CHRONO = {"microseconds": "us", "milliseconds": "ms", "seconds": "s", "minutes": "min", "hours": "h"}
# Why a limit is no option, as the page explains.
REASONS = ("option", "ratio", "share", "wire", "memory", "promise", "turn", "system", "report")


class Duration(int):
    """Nanoseconds."""


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def value_of(name, source, elsewhere=""):
    """The value of a constant or default in a file of C++, which may use those of other files; raises ValueError."""
    code = re.sub(r"//[^\n]*", "", source)
    found = re.search(rf"\b{name}\s*=\s*([^;,]+?)\s*[;,]", code) or re.search(rf"\b{name}\{{([^{{}};]*)\}}", code)
    if not found:
        if not elsewhere:
            raise ValueError(f"no constant {name}")
        return value_of(name, elsewhere)
    value = evaluate(found[1], source, elsewhere)
    return Duration(value * UNITS["ms"]) if name.endswith("_ms") else value


def evaluate(expression, source, elsewhere):
    text = re.sub(r"(?<=\d)'(?=\d)", "", expression)
    text = re.sub(r"\b(?:std::)?(?:u?int\d+_t|size_t|ptrdiff_t|Duration|unsigned)\s*[{(]([^{}()]*)[)}]", r"(\1)", text)
    text = re.sub(r"\b(?:std::)?chrono::(\w+)\(([^()]*)\)", lambda c: f"({c[2]})*1{CHRONO[c[1]]}", text)
    is_duration = bool(re.search(r"\d(?:ns|us|ms|s|min|h)\b", text))
    text = re.sub(r"\b(\d+)(ns|us|ms|s|min|h)\b", lambda c: str(int(c[1]) * UNITS[c[2]]), text)
    text = re.sub(r"\b(0x[0-9a-fA-F]+|\d+)[uUlL]+\b", r"\1", text)

    def resolve(found):
        nonlocal is_duration
        value = value_of(found[0].rpartition("::")[2], source, elsewhere)
        is_duration = is_duration or isinstance(value, Duration)
        return str(int(value))

    text = re.sub(r"\b[A-Za-z_][\w:]*\b(?!x)", lambda c: c[0] if re.match(r"0x", c[0]) else resolve(c), text)
    if not re.fullmatch(r"[\d\sxa-fA-F+*/()<-]+", text):
        raise ValueError(f"can't evaluate {expression}")
    value = eval(text.replace("/", "//"), {"__builtins__": {}})
    return Duration(value) if is_duration else int(value)


def spellings(value):
    """How a page may write a value: 65536, 64 KiB; 2.5 s, 2500 ms."""
    if isinstance(value, Duration):
        names = {"us": "us", "ms": "ms", "s": "s", "min": "minutes", "h": "hours"}
        return [f"{value / UNITS[unit]:g} {name}" for unit, name in names.items()
                if value >= UNITS[unit] and (value * 100) % UNITS[unit] == 0]
    found = [str(value)]
    for shift, unit in ((10, "KiB"), (20, "MiB"), (30, "GiB")):
        if value and value % (1 << shift) == 0:
            found.append(f"{value >> shift} {unit}")
    return found


def shared(root):
    """The constants that several layers use."""
    files = [os.path.join(root, path) for path in ("src/na/provider.h", "include/weft/options.h")]
    return "\n".join(read(path) for path in files if os.path.isfile(path))


def is_stated(value, row):
    return any(re.search(rf"(?<![\d.]){re.escape(one)}(?![\d]|\.\d)", row) for one in spellings(value))


def check_row(root, row):
    """Yields what is wrong with one row of docs/limits.md."""
    reason = re.sub(r"<!--.*?-->", "", row.rstrip("|").rpartition("|")[2]).strip()
    if any(one.split()[0].rstrip(":") not in REASONS for one in reason.split("; ") if one) or not reason:
        yield f"the last cell is none of {', '.join(REASONS)}: '{reason}'"
    text = re.sub(r"<!--.*?-->", "", row)
    for comment in re.findall(r"<!--(.*?)-->", row):
        for path, name in re.findall(r"([\w/.]+):(\w+)", comment):
            files = [os.path.join(root, folder, path) for folder in FOLDERS]
            file = next((one for one in files if os.path.isfile(one)), None)
            if not file:
                yield f"{path} does not exist"
                continue
            try:
                value = value_of(name, read(file), shared(root))
            except ValueError as error:
                yield f"{path}: {error}"
                continue
            if not is_stated(value, text):
                yield f"{path}: {name} is {' or '.join(spellings(value))}, which the row does not state"


def check_limits(root):
    page = os.path.join(root, "docs/limits.md")
    for number, line in enumerate(read(page).splitlines(), 1):
        if line.startswith("|") and not line.startswith(("| what", "|---")):
            for wrong in check_row(root, line):
                yield f"docs/limits.md:{number}: {wrong}"


def check_environment(root):
    """A number in the column of defaults is the default of its option, in the unit of the variable."""
    options = read(os.path.join(root, "include/weft/options.h"))
    for number, line in enumerate(read(os.path.join(root, "docs/environment.md")).splitlines(), 1):
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if not line.startswith("| `WEFT_") or len(cells) < 4 or not re.fullmatch(r"`\w+`", cells[3]):
            continue
        stated = re.match(r"\d+", cells[2])
        if not stated:
            continue
        value = value_of(cells[3].strip("`"), options)
        if isinstance(value, Duration):
            value //= UNITS["us" if "microseconds" in cells[1] else "ms"]
        if int(stated[0]) != value:
            yield f"docs/environment.md:{number}: the default of {cells[3]} is {value}, not {stated[0]}"


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    violations = [*check_limits(root), *check_environment(root)]
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
