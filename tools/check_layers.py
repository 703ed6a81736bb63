#!/usr/bin/env python3
"""Checks the rules of the tree that a compiler does not check.

The include rules (docs/architecture.md), purity, injected time, sizes, titles and registration of
tests. Prints one line per violation, FILE:LINE: problem and reason, and exits 1 if there is any.

    tools/check_layers.py [ROOT]
"""

import os
import re
import subprocess
import sys
from fnmatch import fnmatch

# Each layer may include itself and the layers before it, with the exceptions below.
LAYERS = ["base", "na", "core", "bulk", "rpc", "proto", "group", "coll", "api", "simulator"]
NEVER = {("coll", "na"): "coll reaches peers through rpc"}
# Only the composition root and code outside src may name a provider from outside its folder.
NAMES_PROVIDERS = ["src/api/*", "src/simulator/*"]

# Third-party headers and the files that may include them. Any other header with a slash is refused.
THIRD_PARTY = {
    "weft/": ["*"],
    "sys/": ["src/*", "tests/*", "tools/*", "bench/*", "services/*", "examples/*"],
    "netinet/": ["src/na/*", "tests/*", "tools/*", "bench/*"],
    "net/": ["src/na/*"],
    "arpa/": ["src/na/*", "tests/*", "tools/*", "bench/*"],
    "linux/": ["src/na/*", "src/core/*", "services/storage/*", "tests/*", "tools/*", "bench/*"],
    "rdma/fi_": ["src/na/ofi/*"],
    "rdma/fabric.h": ["src/na/ofi/*"],
    "rdma/rdma_": ["src/na/verbs/*"],
    "infiniband/": ["src/na/verbs/*"],
    "spdlog/": ["src/base/log.cc"],
    "sanitizer/": ["src/rpc/frame_pool.cc"],
    "boost/": ["include/weft/asio.h", "include/weft/asio/*", "tests/*", "examples/asio/*",
               "bench/*"],
    "google/protobuf/": ["include/weft/protobuf.h", "proto/shared_registration.h", "src/proto/*",
                         "src/group/view_file.cc", "tools/*", "tests/*", "bench/*"],
    "isa-l/": ["services/storage/*"],
    "CLI/": ["tools/*", "bench/*"],
    "nlohmann/": ["tools/*", "tests/*", "bench/*"],
    "catch2/": ["tests/support/catch.h"],
    "relacy/": ["tests/models/relacy.h"],
    "valgrind/": ["tests/*"],
}
# Public headers that may include code generated from weft's .proto files, which needs protobuf.
GENERATED = {"include/weft/protobuf.h"}

# Pure state machines and calculations: no threads, sockets, clocks or log.
PURE = [
    "src/base/timer_wheel*", "src/base/intrusive_list.h", "src/base/slot_table.h",
    "src/base/codec.h", "src/base/status.cc", "src/na/address*", "src/na/hello*",
    "src/na/provider.h", "src/bulk/wire.h", "src/bulk/ref.cc",
    "src/rpc/header.h", "src/rpc/backoff*", "src/group/view.cc",
    "src/group/view_message.cc", "src/group/changes.cc", "src/coll/tree*",
    "src/coll/wire*", "src/coll/interval*", "src/coll/rank_order*", "src/coll/outcomes*",
    "src/coll/reduce*", "src/coll/child_requests.*", "src/coll/collective_state*", "src/coll/costs*", "src/coll/collective_table*",
]
IMPURE_HEADERS = re.compile(
    r"^(thread|mutex|condition_variable|future|atomic|fstream|iostream|unistd\.h|poll\.h|fcntl\.h|"
    r"signal\.h|pthread\.h|netdb\.h|sys/.*|netinet/.*|arpa/.*|linux/.*|base/log\.h|base/clock\.h)$")

# Files that may read a clock of the standard library, or sleep. In all others time is an argument.
ASKS_THE_CLOCK = ["src/base/steady_clock.cc", "src/core/driver.cc", "tests/*", "tools/*", "bench/*",
                  "services/*", "examples/*"]
CLOCK = re.compile(r"\b(?:steady_clock|system_clock|high_resolution_clock)::now\s*\(|"
                   r"\bclock_gettime\s*\(|\bgettimeofday\s*\(|\busleep\s*\(|"
                   r"\bthis_thread::sleep_")
CHANCE = re.compile(r"\brandom_device\b|\bmt19937|(?<![\w:.>])s?rand\s*\(")

FILE_LINES_MAX = 500
PUBLIC_HEADER_LINES_MAX = 300
FUNCTION_LINES_MAX = 70
EXCEPTIONS = "tools/size_exceptions.txt"

SOURCE = re.compile(r"\.(?:cc|h)$")
INCLUDE = re.compile(r'^\s*#\s*include\s+(<([^>]+)>|"([^"]+)")')
TODO = re.compile(r"\b(?:TODO|FIXME|XXX)\b(?!\([^)]*#\d+\))")
TITLE = re.compile(r'\b(?:TEST_CASE|CONFORMANCE|TEMPLATE_TEST_CASE)\(\s*"((?:[^"\\]|\\.)*)"')
NOT_A_FUNCTION = re.compile(
    r"^\s*(?:namespace|class|struct|enum|union|if|for|while|switch|do|else|try|catch|extern|case|"
    r"default|template|public|private|protected|#)\b")


def matches(path, patterns):
    return any(fnmatch(path, pattern) for pattern in patterns)


def strip_comments(line):
    """The line without strings and // comments: exact enough for the patterns searched here."""
    return re.sub(r'"(?:[^"\\]|\\.)*"', '""', line).split("//")[0]


class Checker:
    def __init__(self, root):
        self.root = root
        self.violations = []
        self.sizes = {}  # Over a limit: "path" or "path:function" -> (lines, limit).

    def report(self, path, line, text):
        self.violations.append(f"{path}:{line}: {text}")

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read().splitlines()

    def run(self):
        paths = self.list_files()
        for path in paths:
            lines = self.read(path)
            self.check_todos(path, lines)
            if not SOURCE.search(path):
                continue
            self.check_includes(path, lines)
            self.check_words(path, lines)
            self.check_sizes(path, lines)
            self.check_titles(path, lines)
        self.check_exceptions()
        self.check_registration(paths)
        return self.violations

    def list_files(self):
        """The files that git tracks or would track; in a tree without git, all files."""
        listed = subprocess.run(
            ["git", "-C", self.root, "ls-files", "-co", "--exclude-standard"],
            capture_output=True, text=True, check=False)
        if listed.returncode == 0:
            paths = listed.stdout.splitlines()
        else:
            paths = [os.path.relpath(os.path.join(folder, name), self.root)
                     for folder, _, names in os.walk(self.root) for name in names]
        wanted = re.compile(r"^(?:src|include|tests|tools|bench|services|examples|proto|cmake)/")
        text = re.compile(r"\.(?:cc|h|py|sh|txt|cmake|proto)$")
        return sorted(path for path in set(paths)
                      if wanted.match(path) and text.search(path)
                      and os.path.isfile(os.path.join(self.root, path)))

    # Includes.

    def check_includes(self, path, lines):
        for number, line in enumerate(lines, 1):
            found = INCLUDE.match(line)
            if not found:
                continue
            angled, quoted = found.group(2), found.group(3)
            why = (self.why_angled(path, angled) if angled else self.why_quoted(path, quoted))
            if not why and matches(path, PURE) and IMPURE_HEADERS.match(angled or quoted):
                why = "this file is pure: no threads, sockets, clocks or log"
            if why:
                self.report(path, number, f"includes {angled or quoted}: {why}")

    def why_angled(self, path, header):
        if header.startswith("weft/asio") and not matches(path, THIRD_PARTY["boost/"]):
            return "it would pull in Boost"
        if header.endswith(".pb.h"):
            public = path.startswith("include/")
            return "generated code only in protobuf.h" if public and path not in GENERATED else None
        for prefix, users in THIRD_PARTY.items():
            if header.startswith(prefix):
                if not matches(path, users):
                    return f"only {', '.join(users)} may"
                return None
        if "/" in header:
            return "a library that tools/check_layers.py does not list"
        if path.startswith("include/") and header.endswith(".h"):
            return "public headers include only the standard library and <weft/...>"
        return None

    def why_quoted(self, path, header):
        if path.startswith("include/"):
            return "public headers include <weft/...> and nothing of src"
        target = header.split("/")
        if not path.startswith("src/"):
            return None  # Tests, tools and benches may include everything.
        own = path.split("/")
        layer = own[1]
        if target[0] not in LAYERS:
            return f"a path from src is expected, beginning with one of {', '.join(LAYERS)}"
        if layer not in LAYERS:
            return f"src/{layer} is not a layer that tools/check_layers.py lists"
        if LAYERS.index(target[0]) > LAYERS.index(layer):
            return f"{layer} is below {target[0]}"
        if (layer, target[0]) in NEVER:
            return NEVER[layer, target[0]]
        if target[0] == "na" and len(target) == 3:
            shared = target[1] == "common"  # What all providers are made of.
            inside = layer == "na" and ((len(own) == 4 and own[2] == target[1]) or shared)
            if not inside and not matches(path, NAMES_PROVIDERS):
                return f"na/{target[1]} is private to its provider"
        return None

    # Words that show a dependency.

    def check_words(self, path, lines):
        pure = matches(path, PURE)
        for number, raw in enumerate(lines, 1):
            line = strip_comments(raw)
            if CLOCK.search(line) and not matches(path, ASKS_THE_CLOCK):
                self.report(path, number, "reads a clock or sleeps: time is an argument here")
            if path.startswith(("src/", "include/")) and CHANCE.search(line):
                self.report(path, number, "draws its own random numbers: base::Random is injected")
            if pure and re.search(r"(?:\.|->|::)now\s*\(", line):
                self.report(path, number, "this file is pure and must not read the time")

    def check_todos(self, path, lines):
        if os.path.basename(path).startswith("check_layers"):
            return
        for number, line in enumerate(lines, 1):
            if TODO.search(line):
                self.report(path, number, "a TODO without an issue: write TODO(#123) or do it")

    # Sizes.

    def check_sizes(self, path, lines):
        public = path.startswith("include/")
        limit = PUBLIC_HEADER_LINES_MAX if public else FILE_LINES_MAX
        if len(lines) > limit:
            self.sizes[path] = (len(lines), limit)
        for number, name, length in functions(lines):
            if length > FUNCTION_LINES_MAX:
                self.sizes[f"{path}:{name}"] = (length, FUNCTION_LINES_MAX)

    def check_exceptions(self):
        """`tools/size_exceptions.txt`: PATH[:FUNCTION] LINES REASON. It may only shrink."""
        allowed = {}
        if os.path.exists(os.path.join(self.root, EXCEPTIONS)):
            for number, line in enumerate(self.read(EXCEPTIONS), 1):
                line = line.split("#")[0].strip()
                if not line:
                    continue
                words = line.split(maxsplit=2)
                if len(words) < 3 or not words[1].isdigit():
                    self.report(EXCEPTIONS, number, "expected PATH[:FUNCTION] LINES REASON")
                    continue
                allowed[words[0]] = (int(words[1]), number)
        for what, (length, limit) in sorted(self.sizes.items()):
            path = what.split(":")[0]
            if what not in allowed:
                self.report(path, 1, f"{what}: {length} lines, over {limit}: split it")
            elif length > allowed[what][0]:
                self.report(path, 1, f"{what}: grew from {allowed[what][0]} to {length} lines")
            elif length < allowed[what][0]:
                self.report(EXCEPTIONS, allowed[what][1],
                            f"{what} shrank to {length} lines: update its entry")
        for what, (_, number) in allowed.items():
            if what not in self.sizes:
                self.report(EXCEPTIONS, number, f"{what} needs no exception any more")

    # Tests.

    def check_titles(self, path, lines):
        if not path.startswith("tests/"):
            return
        for found in TITLE.finditer("\n".join(lines)):
            title = found.group(1)
            # ctest splits lists at semicolons, and such a test would pass without running.
            if ";" in title or title.startswith(("[", "*", "~")) or not title.strip():
                self.report(path, 1, f"title '{title}': ctest would misread it")

    def check_registration(self, paths):
        lists = "tests/CMakeLists.txt"
        text = "\n".join(self.read(lists)) if lists in paths else ""
        kinds = set(re.findall(r"^\s*weft_tests\((\w+)\)", text, re.M))
        for path in paths:
            name = os.path.basename(path)
            if name.endswith("_test.py"):
                if name not in text:
                    self.report(path, 1, f"{lists} does not run it")
            elif name.endswith("_test.cc") and path.startswith(("tests/", "src/", "include/")):
                parts = path.split("/")
                if parts[0] != "tests" or (parts[1] not in kinds and name not in text):
                    self.report(path, 1, f"{lists} does not build it")
            elif name.endswith(".cc") and path.split("/")[:1] == ["tests"]:
                parts = path.split("/")
                if parts[1] in kinds and "/".join(parts[1:]) not in text:
                    self.report(path, 1, "not named *_test.cc: nothing builds it")


def functions(lines):
    """(line, name, lines) of each function body; relies on clang-format's indentation."""
    at = 0
    while at < len(lines):
        if not lines[at].rstrip().endswith("{") or lines[at].startswith("#"):
            at += 1
            continue
        # The head may span lines: go back to the first line of the statement, which has the same
        # indentation as the closing brace.
        start = at
        while start > 0 and not re.search(r"(?:^|[;{}>]|\w:|//.*|^#.*)$", lines[start - 1]):
            start -= 1
        head = " ".join(part.strip() for part in lines[start:at + 1])
        name = re.search(r"([~\w:]+)\s*\(", head)
        if not name or NOT_A_FUNCTION.match(head) or re.search(r"[=(,]\s*\[.*\{$", head):
            at += 1
            continue
        indent = " " * (len(lines[start]) - len(lines[start].lstrip()))
        end = at + 1
        while end < len(lines) and not lines[end].startswith(indent + "}"):
            end += 1
        yield start + 1, name.group(1), end - start + 1
        at = end + 1


def main():
    root = sys.argv[1] if len(sys.argv) > 1 else os.path.join(os.path.dirname(__file__), "..")
    violations = Checker(os.path.normpath(root)).run()
    for violation in violations:
        print(violation)
    return 1 if violations else 0


if __name__ == "__main__":
    sys.exit(main())
