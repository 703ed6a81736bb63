#!/usr/bin/env python3
"""Checks the size of the classes of src/ and that they do not hold each other in a circle.

- A class has at most 12 data members in a row without a comment that groups them, and at most 25 in all. A group
  begins with a comment on a line of its own, behind an empty line, an access specifier or the opening brace.
- No two classes hold each other as members, by value, pointer, reference or in a container, directly or through others.
  An interface (a class with pure virtual functions) ends a circle: a class that names it depends on no implementation.
  Records (structs without private members, nested classes) are part of what holds them: they are passed through.

Reads the text of clang-formatted sources, without a build. Prints FILE:LINE: problem, one a line, and exits 1 if there
is any; --list prints the number of members of each class instead.

    tools/check_classes.py [--list] [--only=LAYER,LAYER] [ROOT]
"""

import os
import re
import sys
from collections import defaultdict

UNGROUPED_MAX = 12
MEMBERS_MAX = 25

CLASS = re.compile(r"^(?:template\s*<.*>\s*)?(class|struct|union)\s+(?:alignas\([^)]*\)\s*|\[\[[^\]]*\]\]\s*|[A-Z_]+\([^)]*\)\s*)*"
                   r"([A-Za-z_][\w:]*)?\s*(?:final\s*)?(?::(?!:).*)?$", re.S)
NO_MEMBER = re.compile(r"^(using|typedef|friend|static|template|enum|static_assert|extern|namespace|return|constexpr)\b")
ACCESS = re.compile(r"^(public|protected|private)\s*:(?!:)\s*")
MACRO = re.compile(r"\b(?:alignas|WEFT_[A-Z_]+)\s*\([^()]*\)|\[\[[^\]]*\]\]")
BODY_FOLLOWS = re.compile(r"(\)|\}|\b(const|noexcept|override|final|try|do|else))\s*$")


class Class:
    """One class: its name within the others, where it is, its members as (line, type text, names)."""

    def __init__(self, kind, name, path, line, outer):
        self.name, self.path, self.line, self.outer = name, path, line, outer
        self.full = (outer.full + "::" if outer else "") + name
        self.access = "private" if kind == "class" else "public"
        self.has_private = False
        self.is_interface = False
        self.members = []

    def outermost(self):
        return self.outer.outermost() if self.outer else self

    def count(self):
        return sum(names for _, _, names in self.members)


def blank(text):
    """The text without comments, strings and directives, of the same lines, and the lines with a comment alone."""
    comments = set()
    for number, line in enumerate(text.split("\n"), 1):
        if re.match(r"\s*//", line):
            comments.add(number)

    def spaces(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    def literal(match):
        return '"' + " " * (len(match.group(0)) - 2) + '"' if "\n" not in match.group(0) else spaces(match)

    text = re.sub(r'R"\((.|\n)*?\)"', spaces, text)
    text = re.sub(r"//[^\n]*|/\*(.|\n)*?\*/|\"(\\.|[^\"\\\n])*\"|(?<![0-9a-fA-F])'(\\.|[^'\\\n])'",
                  lambda m: literal(m) if m.group(0)[0] in "\"'" else spaces(m), text)
    text = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", spaces, text, flags=re.M)
    return text, comments


def without_angles(text):
    """`text` without template arguments, for the search for a function's parentheses."""
    before = None
    while before != text:
        before, text = text, re.sub(r"<[^<>;{}]*>", "", text)
    return text


def closing(text, at):
    """The index behind the brace that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        if text[i] == "{":
            depth += 1
        elif text[i] == "}":
            depth -= 1
            if depth == 0:
                return i + 1
    return len(text)


def declarators(statement):
    """(text of the type, number of names) of a statement that declares data members; None for any other."""
    text = MACRO.sub(" ", statement).strip()
    text = re.sub(r"^(mutable|inline|constinit)\b\s*", "", text)
    if not text or NO_MEMBER.match(text) or "operator" in text:
        return None
    plain = without_angles(text)
    head = re.split(r"=|\{", plain, maxsplit=1)[0]
    if "(" in head and not re.search(r"\(\s*[*&]", head):
        return None
    if not re.search(r"[\w>*&\])]\s*[*&]*\s*\w", head):
        return None
    depth = names = 0
    previous = ""
    for char in plain:
        if char in "({[":
            depth += 1
        elif char in ")}]":
            depth -= 1
        elif char == "," and depth == 0:
            names += 1
    return re.split(r"=", text, maxsplit=1)[0], names + 1


def parse(path, text):
    """All classes that are defined in a file."""
    original = text.split("\n")
    text, comments = blank(text)
    found = []

    def body(start, end, owner):
        """The statements between two indices; `owner`: the class that they are members of, None in a namespace."""
        at = start
        begin = start
        while at < end:
            char = text[at]
            if char == ";":
                if owner:
                    take(begin, text[begin:at], owner)
                begin = at + 1
            elif char == "(":
                depth = 0
                while at < end:
                    depth += (text[at] == "(") - (text[at] == ")")
                    if depth == 0:
                        break
                    at += 1
            elif char == ":" and ACCESS.match(text[begin:at + 2].strip() + " ") and owner:
                owner.access = text[begin:at].strip()
                begin = at + 1
            elif char == "{":
                statement = text[begin:at].strip()
                close = closing(text, at)
                kind = CLASS.match(without_angles(re.sub(r"^template\s*<[^;{]*?>\s*(?=class|struct|union)", "", statement)))
                if re.match(r"^(inline\s+)?namespace\b", statement) or statement.startswith("extern"):
                    body(at + 1, close - 1, None)
                    begin = close
                elif kind:
                    name = (kind.group(2) or "").split("::")[-1]
                    line = text.count("\n", 0, begin + len(text[begin:at]) - len(text[begin:at].lstrip())) + 1
                    made = Class(kind.group(1), name, path, line, owner)
                    if owner and owner.access != "public":
                        owner.has_private = owner.has_private
                    found.append(made)
                    body(at + 1, close - 1, made)
                    rest = re.match(r"\s*([^;{]*)", text[close:])
                    if owner and rest and rest.group(1).strip():
                        take(begin, (name or "union") + " " + rest.group(1), owner)
                        close += text[close:].index(";") + 1
                        # An initializer in braces ends before the semicolon.
                    begin = close
                elif owner is None or is_body(statement):
                    if owner and re.search(r"=\s*0\s*$", statement):
                        owner.is_interface = True
                    begin = close
                at = close - 1
            at += 1

    def is_body(statement):
        if re.match(r"^(enum|union)\b", statement):
            return False
        head = without_angles(statement)
        if "(" not in re.split(r"(?<![=!<>])=(?!=)", head.replace("operator=", "operator"), maxsplit=1)[0]:
            return False
        if "operator" in head or BODY_FOLLOWS.search(head):
            return True
        return not re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", head) and not re.search(r"\(\s*[*&]", head)

    def take(begin, statement, owner):
        stripped = statement.strip()
        if re.search(r"\bvirtual\b", stripped) and re.search(r"=\s*0\s*$", stripped):
            owner.is_interface = True
        declared = declarators(stripped)
        if declared is None:
            return
        if owner.access != "public":
            owner.has_private = True
        line = text.count("\n", 0, begin + len(text[begin:]) - len(text[begin:].lstrip())) + 1
        owner.members.append((line, declared[0], declared[1]))

    body(0, len(text), None)
    for one in found:
        one.groups = groups_of(one, original, comments)
    return found


def groups_of(one, lines, comments):
    """The numbers of members between two comments that group them, with the line of each group's first member."""
    groups = []
    before = one.line
    for line, _, names in one.members:
        heading = any(number in comments and number - 1 not in comments and
                      (not lines[number - 2].strip() or re.search(r"(:|\{)\s*(//.*)?$", lines[number - 2]))
                      for number in range(before + 1, line))
        if heading or not groups:
            groups.append([line, 0])
        groups[-1][1] += names
        before = line
    return groups


def sizes(classes):
    found = []
    for one in classes:
        if one.count() > MEMBERS_MAX:
            found.append(f"{one.path}:{one.line}: {one.full} has {one.count()} data members, more than {MEMBERS_MAX}: "
                         "compose it of classes that own one thing each")
        elif one.count() > UNGROUPED_MAX and max(count for _, count in one.groups) > UNGROUPED_MAX:
            found.append(f"{one.path}:{one.line}: {one.full} has {one.count()} data members without comments that group "
                         f"them by at most {UNGROUPED_MAX}")
    return found


def held(type_text):
    """The names of the classes that a member holds; the parameters of a callable are not held."""
    text = re.sub(r"\b(?:Function|function|Callback)\s*<[^;]*>", " ", type_text)
    text = re.sub(r"\([^()]*\)", " ", text)
    return re.findall(r"[A-Z]\w*", text)


def circles(classes):
    """One line for each set of classes that hold each other."""
    by_name = defaultdict(list)
    for one in classes:
        by_name[one.name].append(one)

    def named(name, user):
        """The class that `user` means: of its own scope, else its file, folder, or the only one of that name."""
        all_of = [one for one in by_name.get(name, ()) if one.outer is None or one.outer.outermost() is user.outermost() or
                  one.outer.outer is None]
        scope = user
        while scope:
            for one in all_of:
                if one.outer is scope or one is scope:
                    return one
            scope = scope.outer
        free = [one for one in all_of if one.outer is None] or all_of
        near = ([one for one in free if one.path == user.path] or
                [one for one in free if os.path.dirname(one.path) == os.path.dirname(user.path)] or free)
        return near[0] if near and (len(near) == 1 or near[0].path == user.path or len(free) > 1 and
                                    os.path.dirname(near[0].path) == os.path.dirname(user.path)) else None

    holds = defaultdict(dict)
    for one in classes:
        for line, type_text, _ in one.members:
            for name in held(type_text):
                other = named(name, one)
                if other is None or other.is_interface or other.outermost() is one.outermost():
                    continue
                holds[one.outermost()].setdefault(other.outermost(), (one.path, line))

    nested_private = {one.outermost() for one in classes if one.has_private}

    def is_record(one):
        return one not in nested_private

    found = []
    for start in sorted((one for one in classes if one.outer is None and not is_record(one)), key=lambda one: one.full):
        way = way_back(start, holds, is_record)
        if way and start.full == min(one.full for one in way if not is_record(one)):
            path, line = holds[way[0]][way[1]]
            found.append(f"{path}:{line}: " + " -> ".join(one.full for one in way) +
                         ": classes that hold each other; let one name an interface, or take the other as an argument")
    return found


def way_back(start, holds, is_record):
    """The shortest circle through `start` with another class that is no record; [] if there is none."""
    queue = [([start], False)]
    seen = set()
    while queue:
        way, passed = queue.pop(0)
        for other in holds.get(way[-1], {}):
            if other is start:
                if passed:
                    return way + [start]
                continue
            passes = passed or not is_record(other)
            if (other, passes) in seen:
                continue
            seen.add((other, passes))
            queue.append((way + [other], passes))
    return []


def sources(root, only):
    for folder, _, names in sorted(os.walk(os.path.join(root, "src"))):
        if only and os.path.relpath(folder, os.path.join(root, "src")).split(os.sep)[0] not in only:
            continue
        for name in sorted(names):
            if name.endswith((".h", ".cc")):
                yield os.path.relpath(os.path.join(folder, name), root)


def main():
    only = [layer for argument in sys.argv[1:] if argument.startswith("--only=") for layer in argument[7:].split(",")]
    arguments = [argument for argument in sys.argv[1:] if not argument.startswith("--")]
    root = arguments[0] if arguments else os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
    classes = []
    for path in sources(root, only):
        with open(os.path.join(root, path), encoding="utf-8") as file:
            classes += parse(path, file.read())
    if "--list" in sys.argv:
        for one in sorted(classes, key=lambda one: -one.count()):
            print(f"{one.count():4} {one.full}  {one.path}:{one.line}{'  interface' if one.is_interface else ''}")
        return 0
    found = sizes(classes) + circles(classes)
    print("\n".join(found) if found else f"classes: {len(classes)} are small, and none hold each other in a circle")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
