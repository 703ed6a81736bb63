#!/usr/bin/env python3
"""Checks that prose uses no pronouns of persons for processes, and no terms but those of docs/glossary.md.

Prints one line per violation, FILE:LINE: the word and the line, and exits 1 if there is any.

    tools/check_language.py [PATH...]    all files of the repository, or those
"""
import os
import re
import subprocess
import sys

PRONOUNS = re.compile(
    r"\b(he|him|his|himself|she|hers|herself|who|whose|whom|whoever|whomever|nobody|somebody|anybody|everybody"
    r"|someone|anyone|everyone|no one|those that come|those who)\b", re.I)
# Whole lines in which a word is a name: of a user of the system, of a method in an example.
NAMES = re.compile(r"""uid_t nobody|user `?nobody`?|setuid\(nobody\)|["'`]nobody["'`]|who = |\bwho\)|\.who\(\)|set_who|who\(""")
NAMESPACE = re.compile(r"namespace (\S+) \{$")
TYPE = re.compile(r"(?:class|struct|enum class|using) (?:\[\[nodiscard\]\] )?([A-Z]\w*)\b(?! *;|<)")
# Words of an earlier private language.
RETIRED = re.compile(
    r"\b(courtesy|economies|strangers?|riders?|riding|lent|loans?|hungry|starved|rosters?|askers?|asked|told|untold"
    r"|meetings?|meet|doubt|spoil|desert|judge[ds]?|card's|cards?)\b", re.I)
# Third-party text, data and pictures.
SKIP = re.compile(r"^(LICENSE|tests/fuzz/corpus/|tools/check_language(_test)?\.py|docs/.*\.svg)|\.(png|bin|json)$")


def paths(given: list[str]) -> list[str]:
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "-z", "--", *given], text=True,
                            capture_output=True, check=True).stdout
    return sorted(path for path in listed.split("\0") if path and not SKIP.search(path) and os.path.isfile(path))


def violations(path: str, text: str) -> list[str]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        match = PRONOUNS.search(line)
        if match and not NAMES.search(line):
            found.append(f"{path}:{number}: '{match[0]}' for a process: {line.strip()[:120]}")
    return found


def public_types(text: str) -> list[tuple[int, str]]:
    """The types that a public header defines outside of weft::detail, with their lines."""
    namespace = ""
    types = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := NAMESPACE.match(line):
            namespace = match[1]
        elif line.startswith("}  // namespace"):
            namespace = ""
        elif namespace == "weft" and (match := TYPE.match(line)):
            types.append((number, match[1]))
    return types


def missing_terms(path: str, text: str, glossary: str) -> list[str]:
    found = []
    if path.startswith("include/weft/"):
        found += [f"{path}:{number}: the public type {name} is not in docs/glossary.md"
                  for number, name in public_types(text) if not re.search(rf"`{name}[`<]", glossary)]
    for number, line in enumerate(text.splitlines(), 1):
        if path.startswith("include/weft/") or (path.endswith(".md") and line.startswith("#")):
            if match := RETIRED.search(line):
                found.append(f"{path}:{number}: '{match[0]}' is no term of docs/glossary.md: {line.strip()[:100]}")
    return found


def main() -> int:
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
    with open("docs/glossary.md", encoding="utf-8") as file:
        glossary = file.read()
    found = []
    for path in paths(sys.argv[1:]):
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except UnicodeDecodeError:
            continue  # A binary file.
        found += violations(path, text) + missing_terms(path, text, glossary)
    print("\n".join(found))
    print(f"language: {len(found)} violations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
