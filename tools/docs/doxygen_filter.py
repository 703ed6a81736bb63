#!/usr/bin/env python3
"""Prints a public header with its plain comments as Doxygen reads them: the input filter of tools/docs/Doxyfile.

    tools/docs/doxygen_filter.py HEADER

The headers of include/weft keep plain comments. Here the comment above a declaration becomes ///, the one behind a
member ///<, and the one at the top of the file describes the file. Comments inside of functions stay as they are.
A header without a public name is left out.
"""

import re
import sys

COMMENT = re.compile(r"^(\s*)// ?(.*)$")
TRAILING = re.compile(r"^(\s*[^/\s].*?[;,{}\w])\s+// (.*)$")
HEADLINE = re.compile(r"-{2,} (.*?):? -{2,}$")  # "// ---- title -----" between members.
FRIEND = re.compile(r"^\s*friend [^()]*;$")  # Of no use to readers, and Doxygen takes some for functions.
TITLED = re.compile(r"^(Requires|Errors|Thread|Threads|Lifetime|Default): (.*)$")
PUBLIC = re.compile(r"^namespace weft(::sim)? \{", re.M)
SCOPE = re.compile(r"\b(namespace|class|struct|union|enum)\b[^()=]*$|\bextern \"C\"\s*$")


def markup(text):
    """The text with what Doxygen would read as commands escaped, except between backticks."""
    parts = text.split("`")
    for at in range(0, len(parts), 2):
        parts[at] = re.sub(r"([\\@<>#%&])", r"\\\1", parts[at])
    text = "`".join(parts)
    return TITLED.sub(r"<b>\1:</b> \2", text)


class Scopes:
    """The open braces: whether each one is that of a namespace or type, or of a function or initializer."""

    def __init__(self):
        self.open, self.head = [], ""

    def declares(self):
        return all(self.open)

    def read(self, line):
        code = re.sub(r"//.*$|\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)'", "", line)
        if code.lstrip().startswith("#"):
            return
        for character in code:
            if character == "{":
                self.open.append(bool(SCOPE.search(self.head)))
                self.head = ""
            elif character == "}":
                if self.open:
                    self.open.pop()
                self.head = ""
            elif character == ";":
                self.head = ""
            else:
                self.head += character
        self.head += " "


def block(lines, indent):
    """A comment above a declaration, as lines of ///. Its indented lines are code; a new thought gets a paragraph."""
    out, in_code = [], False
    for text in lines:
        is_code = text.startswith("    ")
        if is_code != in_code and (is_code or text):
            while out and not out[-1]:
                out.pop()
            out += ["", "\\code{.cpp}"] if is_code else ["\\endcode", ""]
            in_code = is_code
        if in_code:
            out.append(text[4:])
            continue
        out += ["", markup(text)] if TITLED.match(text) else [markup(text)]
    if in_code:
        out.append("\\endcode")
    return [f"{indent}/// {text}".rstrip() for text in out]


def converted(text, name):
    if not PUBLIC.search(text):
        return ""
    lines, out, scopes, at = text.splitlines(), [], Scopes(), 0
    if lines and COMMENT.match(lines[0]):
        out += [f"/// \\file {name}"]
    while at < len(lines):
        found = COMMENT.match(lines[at])
        if found and scopes.declares():
            indent, comment = found.group(1), []
            while at < len(lines) and (found := COMMENT.match(lines[at])):
                if not HEADLINE.search(found.group(2)):
                    comment.append(found.group(2))
                at += 1
            out += block(comment, indent)
            continue
        line = "" if FRIEND.match(lines[at]) else lines[at]
        found = TRAILING.match(line)
        if found and scopes.declares() and not line.lstrip().startswith(("#", "}", "//")):
            out.append(f"{found.group(1)}  ///< {markup(found.group(2))}")
        else:
            out.append(line)
        scopes.read(line)
        at += 1
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        print(converted(header.read(), re.sub(r"^.*include/", "", sys.argv[1])), end="")
