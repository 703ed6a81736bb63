#!/usr/bin/env python3
"""Generated code for services, methods, messages, fields and packages with each name that C++ or the generated code itself
uses for something else, and for everything that a .proto may deprecate, compiled with all warnings.

Names in capitals are compiled, or refused by name where a macro has one.

    every_word.py PROTOC PLUGIN INCLUDE_DIRS COMPILER [COMPILER ...]

INCLUDE_DIRS: separated by ';'. Errors are printed, and the exit status is 1.
"""
import pathlib
import re
import subprocess
import sys
import tempfile

KEYWORDS = """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char8_t char16_t char32_t class
compl concept const consteval constexpr constinit const_cast continue co_await co_return co_yield decltype default delete do
double dynamic_cast else enum explicit export extern false float for friend goto if inline int long mutable namespace new
noexcept not not_eq nullptr operator or or_eq private protected public register reinterpret_cast requires return short signed
sizeof static static_assert static_cast struct switch template this thread_local throw true try typedef typeid typename union
unsigned using virtual void volatile wchar_t while xor xor_eq final override import module""".split()
# protobuf 3.21 does not escape these: messages and fields of such names do not compile by themselves.
UNKNOWN = {"char8_t", "char16_t", "char32_t", "concept", "consteval", "constinit", "co_await", "co_return", "co_yield",
           "requires"}
# Packages of these names do not compile either.
OF_PROTOBUF = {"std", "google", "internal"}
# Names in capitals that get an underscore appended in generated code.
CAPITALS = {"BUFSIZ", "CTRL", "EOF", "INFINITY", "NAN", "NDEBUG", "NULL", "NZERO", "SOMAXCONN"}
# Names that protobuf's own code can't use: the macros of the C library.
MACROS = {"NULL", "errno", "stdin", "stdout", "stderr", "assert", "EOF", "NDEBUG"}
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]
FORMS = [["-std=c++20"], ["-std=c++2b"], ["-std=c++20", "-fvisibility=hidden", "-fPIC"], ["-std=gnu++20"]]
# Headers that a program may include before generated code: they define words in lower case as macros, as Qt does.
BEFORE = """
#include <arpa/nameser.h>
#include <cassert>
#include <cmath>
#include <csetjmp>
#include <cstdio>
#include <endian.h>
#include <getopt.h>
#include <libgen.h>
#include <netdb.h>
#include <pthread.h>
#include <resolv.h>
#include <sys/dir.h>
#include <sys/param.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#define signals public
#define slots
#define emit
#define foreach(each, all) for (each : all)
#define forever for (;;)
"""
# Used twice, once in a file that is deprecated itself.
DEPRECATED = """
service Old {
  option deprecated = true;
  rpc Load(Request) returns (Reply) {
    option deprecated = true;
    option (.weft.method) = { collective: true group: { merge: true } };
  }
  rpc Take(Gone) returns (Gone) {
    option deprecated = true;
    option (.weft.method) = { collective: true inline_handler: true };
  }
  rpc Tell(Request) returns (Gone) { option deprecated = true; }
}
message Request {
  option deprecated = true;
  uint64 value = 1 [deprecated = true];
}
message Reply {
  option deprecated = true;
  uint64 sum = 1 [(.weft.field).merge = SUM, deprecated = true];
  optional double least = 2 [(.weft.field).merge = MIN, deprecated = true];
  optional Kind most = 3 [(.weft.field).merge = MAX, deprecated = true];
  optional bool all = 4 [(.weft.field).merge = AND, deprecated = true];
  repeated int32 any = 5 [(.weft.field).merge = OR, deprecated = true];
  string text = 6 [(.weft.field).merge = CONCAT, deprecated = true];
  repeated string texts = 7 [(.weft.field).merge = CONCAT, deprecated = true];
  bytes first = 8 [(.weft.field).merge = FIRST, deprecated = true];
  repeated Kind firsts = 9 [(.weft.field).merge = FIRST, deprecated = true];
  Gone gone = 10 [deprecated = true];
  Gone first_gone = 11 [(.weft.field).merge = FIRST, deprecated = true];
  repeated Gone all_gone = 12 [(.weft.field).merge = CONCAT, deprecated = true];
  Own own = 13 [(.weft.field).merge = USER, deprecated = true];
}
message Gone {
  option deprecated = true;
  optional uint64 value = 1 [(.weft.field).merge = MAX];
}
message Own {
  option deprecated = true;
  uint64 value = 1;
}
enum Kind {
  option deprecated = true;
  NONE = 0;
  SOME = 1 [deprecated = true];
}
"""
# Macros of those headers for parts of structures or for functions, which are no names of services.
BORING = re.compile("ns_|nsaddr|dn_|fp_|p_|b64_|loc_|res_|sym_|td_|th_|ifr_|dq_|d_fileno|rr_|putlong|putshort|is[a-z]+_l|toascii_l")


def service(name, methods):
    collective = " { option (.weft.method) = { collective: true }; }"
    lines = [f"  rpc {method}(.m.Nothing) returns (.m.Nothing){collective if i % 2 else ';'}"
             for i, method in enumerate(methods)]
    return "\n".join([f"service {name} {{", *lines, "}"])


class Words:
    def __init__(self, root, protoc, plugin, dirs):
        self.root = root
        self.dirs = dirs
        self.generate = [protoc, f"--plugin=protoc-gen-weft={plugin}", f"--proto_path={root}",
                         *(f"--proto_path={one}" for one in dirs), f"--cpp_out={root}",
                         f"--weft_out={root}"]
        self.write("m", "m", ["message Nothing {}"], options=False)

    def write(self, name, package, lines, options=True):
        head = ['syntax = "proto3";', f"package {package};"]
        head += ['import "weft/options.proto";', 'import "m.proto";'] if options else []
        path = self.root / f"{name}.proto"
        path.write_text("\n".join(head + lines) + "\n")
        subprocess.run([*self.generate, path], check=True)

    def words(self):
        """All words of the generated code of a service."""
        self.write("plain", "plain", [service("Plain", ["Ask", "Tell"])])
        said = set()
        for kind in ("h", "cc"):
            text = (self.root / f"plain.weft.{kind}").read_text()
            said |= set(re.findall(r"\b[A-Za-z_]\w*\b", re.sub(r"//.*|#.*", "", text)))
        return sorted(w for w in said if not w.startswith(("_", "Plain")) and w not in MACROS)

    def macros(self, compiler):
        """All lower-case macros of BEFORE, its includes and the generated code's own headers."""
        self.write("plain", "plain", [service("Plain", ["Ask", "Tell"])])
        source = self.root / "macros.cc"
        source.write_text(BEFORE + '#include "plain.weft.h"\n')
        defined = subprocess.run([compiler, "-std=gnu++20", "-dM", "-E", f"-I{self.root}",
                                  *(f"-isystem{one}" for one in self.dirs), str(source)],
                                 text=True, capture_output=True, check=True).stdout
        found = set(re.findall(r"^#define ([a-z]\w*)", defined, re.M))
        return sorted({*(word for word in found if not BORING.match(word)), *MACROS})

    def write_all(self, compiler):
        macros = self.macros(compiler)
        words = sorted({*KEYWORDS, *self.words()})
        self.write("methods", "methods", [service("Every", words)])
        self.write("services", "services", [service(word, [word, "Other"]) for word in words])
        known = [word for word in words if word not in UNKNOWN]
        messages = [f"message {word} {{ int32 value = 1; }}" for word in known]
        taking = ["service Taking {", *(f"  rpc Take{i}(.messages.{word}) returns (.messages.{word});"
                                        for i, word in enumerate(known)), "}"]
        self.write("messages", "messages", messages + taking, options=False)
        fields = [f"  int32 {word} = {i};" for i, word in enumerate(KEYWORDS, 1) if word not in UNKNOWN]
        self.write("fields", "fields", ["message All {", *fields, "}", "service Takes {",
                                        "  rpc Take(All) returns (All);", "}"],
                   options=False)
        self.write("macros", "macros", [service("Macros", macros), *(
            service(word, [word, "Other"]) for word in macros)])
        inside = [word for word in words if word not in {*KEYWORDS, *OF_PROTOBUF}]
        self.write("packages", ".".join(["packages", *inside]), [service("weft", ["detail", "call"])])
        for name, option in (("deprecated_parts", ""), ("deprecated_file", "option deprecated = true;")):
            header = f'option (.weft.file).merge_header = "{name}.h";'
            self.write(name, name, [option, header, DEPRECATED])
            (self.root / f"{name}.h").write_text(
                f'#pragma once\n#include "{name}.pb.h"\n'
                f"namespace {name} {{ inline void merge(Own&, const Own&) {{}} }}\n")
        return len(words) + len(macros)

    def check_capitals(self, compiler):
        """Macros in capitals of the generated code's own headers are refused by name; other capitals compile. Returns
        the first violation."""
        self.write("plain", "plain", [service("Plain", ["GET", "LIST_2", "X_"])])
        source = self.root / "capitals.cc"
        source.write_text('#include "plain.weft.cc"\n')
        includes = [f"-I{self.root}", *(f"-isystem{one}" for one in self.dirs), str(source)]
        done = subprocess.run([compiler, "-std=c++20", *WARNINGS, "-fsyntax-only", *includes],
                              text=True, capture_output=True)
        if done.returncode != 0:
            return done.stderr
        defined = subprocess.run([compiler, "-std=gnu++20", "-dM", "-E", *includes], text=True, capture_output=True,
                                 check=True).stdout
        macros = sorted({*re.findall(r"^#define ([A-Z][A-Z0-9_]*)\b", defined, re.M)} - CAPITALS)
        if not {"PATH_MAX", "BIG_ENDIAN", "SEEK_END", "INT_MAX"} <= set(macros):
            return "the headers define not even INT_MAX"
        self.write("plain", "plain", [service("Plain", macros)])
        said = subprocess.run([compiler, "-std=gnu++20", "-fsyntax-only", "-fmax-errors=0" if "clang" not in compiler
                               else "-ferror-limit=0", *includes], text=True, capture_output=True).stderr
        refused = re.findall(r"error:.*method plain.Plain/(\w+): its name is a macro here; rename the method", said)
        missed = {*macros} - {*refused}
        return f"compiled without an error: {sorted(missed)[:20]}" if missed else ""

    def compile(self, compiler, form):
        units = ["methods", "services", "macros", "messages", "fields", "packages", "deprecated_parts",
                 "deprecated_file"]
        source = self.root / "all.cc"
        source.write_text(BEFORE + "".join(f'#include "{unit}.weft.cc"\n' for unit in units))
        command = [compiler, *form, *WARNINGS, "-fsyntax-only", f"-I{self.root}",
                   *(f"-isystem{one}" for one in self.dirs), str(source)]
        return subprocess.run(command, text=True, capture_output=True)


def main(protoc, plugin, dirs, *compilers):
    with tempfile.TemporaryDirectory() as root:
        words = Words(pathlib.Path(root), protoc, plugin, dirs.split(";"))
        count = words.write_all(compilers[0])
        for compiler in compilers:
            for form in FORMS:
                done = words.compile(compiler, form)
                print(f"{count} words, {compiler} {' '.join(form)}: {'compile' if done.returncode == 0 else 'FAILED'}",
                      flush=True)
                if done.returncode != 0:
                    print("\n".join(done.stderr.splitlines()[:60]))
                    return 1
            trouble = words.check_capitals(compiler)
            if trouble:
                print(f"names in capitals, {compiler}: {trouble}")
                return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
