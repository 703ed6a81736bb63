#!/usr/bin/env python3
"""The manual pages and the completions agree with the command, and all files have the same version.

    manuals.py WEFT SOURCE
"""
import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

WEFT, ROOT = sys.argv.pop(1), pathlib.Path(sys.argv.pop(1)).resolve()
PAGE = (ROOT / "docs/man/weft.1").read_text(encoding="utf-8").replace(r"\-", "-")
COMMON = {"--help", "--json"}


def run(*command, **more):
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True,
                          **more).stdout


@functools.cache
def help_of(*command):
    return run(WEFT, *command, "--help")


def options_of(text):
    return set(re.findall(r"^ +(?:-h,)?(--[a-z-]+)", text, re.M))


def names_below(*command):
    return re.findall(r"^  ([a-z]+) ", help_of(*command).partition("Subcommands:")[2], re.M)


@functools.cache
def commands():
    """The commands that run: "put", "group ls"."""
    return [" ".join([name, *below]) for name in names_below()
            for below in ([[one] for one in names_below(name)] or [[]])]


class ManualPage(unittest.TestCase):
    def sections(self):
        """The text of each command in the part COMMANDS."""
        parts = re.split(r"^\.SS weft ([a-z]+(?: [a-z]+)?)", PAGE.split(".SH COMMANDS")[1], flags=re.M)
        return dict(zip(parts[1::2], (part.split("\n.SH ")[0] for part in parts[2::2])))

    def test_every_command_has_its_section(self):
        self.assertEqual(sorted(self.sections()), sorted(commands()))

    def test_options_are_those_of_help(self):
        for command, section in self.sections().items():
            with self.subTest(command=command):
                titles = re.findall(r"^\.TP\n(.*)", section, re.M)
                described = {word for title in titles for word in re.findall(r"--[a-z-]+", title)}
                self.assertEqual(described | COMMON, options_of(help_of(*command.split())))

    def test_options_of_all_commands(self):
        everywhere = PAGE.split(".SH OPTIONS")[1].split(".SH ")[0]
        self.assertLessEqual(COMMON | options_of(help_of()),
                             set(re.findall(r"--[a-z-]+", everywhere)))

    def test_positionals_are_those_of_help(self):
        for command in commands():
            with self.subTest(command=command):
                usage = re.search(rf"^Usage: weft {command} \[OPTIONS\](.*)",
                                  help_of(*command.split()), re.M).group(1)
                title = re.search(rf"^\.SS weft {command}(.*)", PAGE, re.M).group(1)
                self.assertEqual(re.sub(r"\\f.", "", title), usage)

    def test_variables_are_those_of_the_table(self):
        page = (ROOT / "docs/environment.md").read_text(encoding="utf-8")
        table = set(re.findall(r"^\| `(WEFT_[A-Z_]+)`", page, re.M))
        self.assertEqual(set(re.findall(r"\bWEFT_[A-Z_]+\b", PAGE)) - {"WEFT_"}, table)

    @unittest.skipUnless(shutil.which("groff"), "groff is not installed")
    def test_pages_have_no_errors(self):
        for path in (ROOT / "docs/man").iterdir():
            done = subprocess.run(["groff", "-man", "-ww", "-Tutf8", "-Kutf8", path],
                                  capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr), (0, ""), path.name)


class Completion(unittest.TestCase):
    CASES = [([""], set(names_below())), (["group", ""], set(names_below("group"))),
             (["group", "--json", "ev"], {"evict"}), (["group", "-"], options_of(help_of("group"))),
             (["p"], {"ping", "perf", "put"}),
             (["put", "--q"], {"--quiet"}), (["perf", "--memory", ""], {"arena", "private"}),
             (["perf", "f"], {"floor"}), (["ping", "--count", ""], set()),
             (["--vers"], {"--version"}),
             *((([*command.split(), "-"]), options_of(help_of(*command.split())))
               for command in commands())]

    def check(self, complete):
        for words, wanted in self.CASES:
            with self.subTest(words=words):
                self.assertEqual(set(complete(words)), wanted)

    def test_bash(self):
        def complete(words, cwd=None):
            script = (f'source {ROOT}/tools/completion/weft.bash; COMP_WORDS=("$@"); '
                      'COMP_CWORD=$(($# - 1)); '
                      '_weft "$1" "${!#}" "${COMP_WORDS[COMP_CWORD-1]}"; '
                      'printf "%s\\n" "${COMPREPLY[@]}"')
            return run("bash", "-euc", script, "bash", WEFT, *words, cwd=cwd).split()
        self.check(complete)
        self.assertEqual(complete(["put", "READ"], ROOT), ["README.md"])
        self.assertEqual(complete(["serve", "--root", "includ"], ROOT), ["include"])

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed")
    def test_zsh(self):
        # Replaces the functions that exist only in a terminal's line editor.
        script = ('compadd() { for word in "${@:2}"; do '
                  '[[ $word == ${words[CURRENT]}* ]] && print -r -- $word; done }; '
                  '_files() { print FILES }; '
                  f'complete() {{ source {ROOT}/tools/completion/_weft }}; '
                  'words=("$@"); CURRENT=$#; complete; true')

        def complete(words):
            return run("zsh", "-fc", script, "zsh", WEFT, *words).split()
        self.check(complete)
        self.assertEqual(complete(["put", "a"]), ["FILES"])


class Version(unittest.TestCase):
    def test_it_is_the_same_everywhere(self):
        def find(path, pattern):
            return re.search(pattern, (ROOT / path).read_text(encoding="utf-8"), re.M).group(1)
        version = find("CMakeLists.txt", r"^project\(weft VERSION ([0-9.]+)")
        minor = version.rsplit(".", 1)[0]
        self.assertEqual(run(WEFT, "--version"), f"weft {version}\n")
        self.assertEqual(find("debian/changelog", r"^weft \(([0-9.]+)"), version)
        self.assertEqual(find("CHANGELOG.md", r"^## \[([0-9.]+)\]"), version)
        self.assertEqual(find("spack/packages/weft/package.py", r'version\("([0-9.]+)"'), version)
        self.assertEqual(find("README.md", r"find_package\(weft ([0-9.]+)"), minor)
        self.assertEqual(find("examples/02_three_calls/CMakeLists.txt",
                              r"find_package\(weft ([0-9.]+)"), minor)


if __name__ == "__main__":
    os.environ["LC_ALL"] = "C.UTF-8"
    unittest.main()
