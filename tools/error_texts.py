#!/usr/bin/env python3
"""Lists every text of a failure, abort or log line that users can meet, and refuses those that name no subject.

    tools/error_texts.py            writes docs/error-texts.md
    tools/error_texts.py --check    exits 1 if that page is stale, or if a text breaks a rule

A text is the literal parts of one expression of C++, with {…} for its values. The function that takes it decides its
kind: a failure with its code, a line of the log, an abort, or a part of one of these. Help, figures and generated code
are left out.
"""

import os
import re
import subprocess
import sys

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
PAGE = "docs/error-texts.md"
SOURCES = ["include/weft", "src", "examples/storage", "services", "tools/protoc-gen-weft", "tools/weft"]
# Faults of tests, simulated runs, generated code, tables of figures, and the guide that no program contains.
NOT_LISTED = re.compile(r"tools/weft/(sim|suite/report|perf/report|info/info)|tools/protoc-gen-weft/(generate|names)|src/base/mutant"
                        r"|src/na/sim/packet_log|src/na/verbs/device_(counters|report)|src/base/histogram"
                        r"|src/(core/context|rpc/client|rpc/server)_state|src/na/template/")
# Functions that take texts of other kinds: help, figures, names of events.
HELP = re.compile(r"(^|\.|->|::)(add_option|add_flag|description|footer|set_up|static_assert|printf|strftime|snprintf|sscanf"
                  r"|column|duration|record_event|value_in|plain|app|set_pattern)$")
ABORT = re.compile(r"(^|\.|->|::)(abort\w*|refuse_\w+|require\w*|keep_until_exit|report_forked|context_to_resume_in)$")
LOG = re.compile(r"(^|\.|->)(warning|error|info|debug|write_rate_limited|log_thrown|write_to_standard_error)$|log_thrown|fprintf$")
FAILURE = re.compile(r"(^|\.|->|::)(fail|rejected|refused?|Status|aborted|denied|errno_status|file_error|logic_error"
                     r"|invalid_argument|system_error|take_down(_later)?|fail_to_connect|finish|cut|on_hang_up|drop|post|end"
                     r"|on_lost|fail_sender|resolve_unknown|cancel|reset)$")
# Words that describe something without naming it, at the beginning of a text.
NO_SUBJECT = re.compile(r"(not|bad|invalid|wrong|unknown|illegal|malformed|too|cancelled|stale|truncated|unexpected|failed"
                        r"|error|out|another|larger|smaller|garbage|no such|it|its|they|there|here)\b", re.I)
VALUE = "{…}"
CLOSE = {"(": ")", "{": "}", "[": "]"}
ENDS = {",", ";", "?", ":", "=", "+=", "==", "!=", "&&", "||", "return", "co_return", "co_await", "case", "throw"}
HEADS = {"else", "const", "noexcept", "override", "final", "do", "try", "mutable", "return", "co_return"}
TOKEN = re.compile(r'''
    (?P<space>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\n\\]|\\\n|\\.)*)
  | (?P<raw>R"(?P<mark>[^(\s]*)\((?P<body>.*?)\)(?P=mark)")
  | (?P<string>"(?:[^"\\\n]|\\.)*")
  | (?P<char>'(?:[^'\\\n]|\\.)+')
  | (?P<word>[A-Za-z_][\w]*(?:(?:::|\.|->)[A-Za-z_~]\w*)*|\d[\w'.]*)
  | (?P<sign><<|>>|->|::|[-+*/%<>=!&|^]=|&&|\|\||.)
''', re.X | re.S | re.M)


def tokens(text):
    """The tokens of C++ without space, comments and directives, as (kind, text)."""
    for found in TOKEN.finditer(text):
        if found["space"]:
            continue
        if found["raw"]:
            yield "string", found["body"]
        elif found["string"]:
            yield "string", re.sub(r"\\(.)", lambda c: {"n": " ", "t": " "}.get(c[1], c[1]), found["string"][1:-1])
        else:
            yield ("word" if found["word"] else "sign"), found[0]


class Parser:
    """Finds the texts of one file: (function that takes it, code of the failure, text)."""

    def __init__(self, text):
        self.tokens, self.at, self.found = list(tokens(text)), 0, []

    def parse(self, callee="", close=None):
        """Reads up to `close`; each expression with a literal becomes a text of `callee`."""
        parts, before, code = [], ("sign", close), ""
        while self.at < len(self.tokens):
            kind, token = self.tokens[self.at]
            self.at += 1
            if kind == "sign" and token == close:
                break
            if kind == "string":
                parts.append(token)
            elif token in CLOSE:
                self.parse(name_of(token, before, callee), CLOSE[token])
                if token == "{":
                    self.end(callee, code, parts)
                    parts, code = [], ""
                else:
                    add_value(parts)
            elif token in ENDS:
                self.end(callee, code, parts)
                parts = []
                code = code if token == "," else ""
            elif found := re.search(r"\bCode::(\w+)$", token):
                code = found[1].upper()
                add_value(parts)
            elif token not in ("+", "<<"):
                add_value(parts)
            before = (kind, token)
        self.end(callee, code, parts)
        return self.found

    def end(self, callee, code, parts):
        if any(part is not VALUE for part in parts):
            text = " ".join("".join(parts).split())
            if "printf" in callee:
                text = re.sub(r"%[-0-9.*lz]*[a-z]", VALUE, text)
            self.found.append((callee, code, text))


def add_value(parts):
    if not parts or parts[-1] is not VALUE:
        parts.append(VALUE)


def name_of(token, before, callee):
    """The function, or type, that takes the arguments behind the bracket `token`."""
    kind, word = before
    if kind == "sign" and word in ("(", ",", "?", ":", "{", None):
        return callee
    return word if kind == "word" and token != "{" and word not in HEADS else ""


def texts_of(source):
    return Parser(source).parse()


def kind_of(callee, code):
    """How the page lists a text: its code, "log", "abort" or "part"; None: not at all."""
    if HELP.search(callee):
        return None
    if ABORT.search(callee):
        return "abort"
    if LOG.search(callee):
        return "log"
    return (code or "any code") if FAILURE.search(callee) else "part"


def why_bad(text):
    """None for a text that names its subject, else the rule that it breaks."""
    if NO_SUBJECT.match(text):
        return "it begins without a subject"
    if len(text.split()) < 3 and VALUE not in text:
        return "it names neither a thing nor a value"
    if text.startswith("no ") and not re.search(r"[;:({]", text):
        return "it names neither the place nor the remedy"
    return None


def listed():
    """The texts of the repository, as (file, kind, text), each once."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *SOURCES], cwd=ROOT, text=True,
                           capture_output=True, check=True).stdout.split()
    found = []
    for path in sorted(files, key=os.path.split):
        if not path.endswith((".cc", ".h")) or NOT_LISTED.match(path) or not os.path.isfile(os.path.join(ROOT, path)):
            continue
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            for callee, code, text in texts_of(file.read()):
                kind = kind_of(callee, code)
                if kind and " " in text.replace(VALUE, "").strip():
                    found.append((path, kind, text))
    return list(dict.fromkeys(found))


def page_of(texts):
    lines = ["# Texts of failures and log lines", "",
             "Every text that a user can meet, from the sources by `tools/error_texts.py`; `make check` refuses a page that is stale, and",
             "texts without a subject. {…} stands for a value. A *part* is joined with others. [errors.md](errors.md) has the cause and",
             "remedy of each code.", ""]
    folder = None
    for path, kind, text in texts:
        if os.path.dirname(path) != folder:
            folder = os.path.dirname(path)
            lines += ["", f"## {folder}", "", "| file | kind | text |", "|---|---|---|"]
        escaped = re.sub(r"([][|*\\])", r"\\\1", text).replace("<", "&lt;").replace("](", "]\\(")
        lines.append(f"| {os.path.basename(path)} | {kind} | {escaped} |")
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)) + "\n"


def main():
    texts = listed()
    page = page_of(texts)
    full = os.path.join(ROOT, PAGE)
    if sys.argv[1:] != ["--check"]:
        with open(full, "w", encoding="utf-8") as file:
            file.write(page)
        return 0
    bad = [f"{path}: {why}: {text}" for path, kind, text in texts if kind not in ("part", "abort") and (why := why_bad(text))]
    with open(full, encoding="utf-8") as file:
        if file.read() != page:
            bad.append(f"{PAGE}: stale; write it by tools/error_texts.py")
    print("\n".join(bad))
    print(f"error texts: {len(texts)}, {len(bad)} violations")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
