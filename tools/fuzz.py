#!/usr/bin/env python3
"""Builds the fuzz targets (tests/fuzz) with libFuzzer and runs each for a while.

    tools/fuzz.py [--minutes 10] [TARGET...]     all, or those named: server, tcp_peer, ...
    tools/fuzz.py --save [TARGET...]             saves inputs that add coverage to tests/fuzz/corpus

A run starts from tests/fuzz/corpus/TARGET and the inputs of earlier runs in build/fuzz/corpus/TARGET.
An input that fails is kept in build/fuzz/findings and printed with the command that repeats it; the
last line is the verdict. --save replaces the committed corpus by the smallest set of short inputs with
the coverage of all inputs, for review: nothing else writes into the source tree.
"""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
BUILD = REPOSITORY / "build" / "fuzz"
SOURCES = REPOSITORY / "tests" / "fuzz"
FINDINGS = BUILD / "findings"
PROGRESS = re.compile(r"^#(\d+)\s.*\bcov: (\d+)")
FINAL = re.compile(r"^stat::number_of_executed_units:\s*(\d+)")
ARTIFACT = re.compile(r"Test unit written to (\S+)")
PROGRESS_SECONDS = 20
# Limits of a saved corpus.
FILES_MAX = 48
FILE_BYTES_MAX = 1024


def all_targets():
    return sorted(path.stem.removeprefix("fuzz_") for path in SOURCES.glob("fuzz_*.cc"))


def command_of(target, *arguments):
    return ["tools/sanitized.sh", str(BUILD / "bin" / f"fuzz_{target}"), *map(str, arguments)]


def corpora_of(target):
    """The working corpus, which grows, and the committed one."""
    working, committed = BUILD / "corpus" / target, SOURCES / "corpus" / target
    working.mkdir(parents=True, exist_ok=True)
    return [working] + [committed] * committed.is_dir()


class Run:
    """A run of one target for `seconds`."""

    def __init__(self, target, seconds):
        self.target, self.seconds = target, seconds
        self.executions = self.edges = 0
        self.lines = []
        self.artifact = None
        self.begin = self.shown = time.monotonic()

    def say(self, how):
        print(f"fuzz: {self.target:<14} {how:<8} {self.executions:>12,} executions"
              f"{self.edges:>8,} edges{time.monotonic() - self.begin:8.0f} s", flush=True)

    def hear(self, line):
        if progress := PROGRESS.match(line):
            self.executions, self.edges = map(int, progress.groups())
            if time.monotonic() - self.shown > PROGRESS_SECONDS:
                self.shown = time.monotonic()
                self.say("runs")
            return
        if final := FINAL.match(line):
            self.executions = int(final.group(1))
        if artifact := ARTIFACT.search(line):
            self.artifact = pathlib.Path(artifact.group(1))
        self.lines = self.lines[-200:] + [line.rstrip("\n")]

    def run(self):
        FINDINGS.mkdir(parents=True, exist_ok=True)
        words = SOURCES / f"{self.target}.dict"
        command = command_of(
            self.target, f"-max_total_time={self.seconds}", "-rss_limit_mb=4096", "-timeout=30",
            "-print_final_stats=1", "-reload=0", f"-artifact_prefix={FINDINGS}/{self.target}-",
            *[f"-dict={words}"] * words.is_file(), *corpora_of(self.target))
        process = subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.PIPE, text=True, errors="replace",
                                   start_new_session=True)
        try:
            for line in process.stderr:
                self.hear(line)
            process.wait()
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        self.say("held" if process.returncode == 0 else "FAILED")
        if process.returncode == 0:
            return True
        print("\n".join(self.lines[-80:]))
        if self.artifact:
            print(f"fuzz: the input is {self.artifact}; repeat with: "
                  f"{' '.join(command_of(self.target, self.artifact))}")
        return False


def save(target):
    """Saves the smallest set of short inputs with the coverage of all inputs that were found."""
    committed = SOURCES / "corpus" / target
    with tempfile.TemporaryDirectory(dir=BUILD) as chosen:
        done = subprocess.run(
            command_of(target, "-set_cover_merge=1", f"-max_len={FILE_BYTES_MAX}", chosen,
                       *corpora_of(target)),
            cwd=REPOSITORY, capture_output=True, text=True, errors="replace", check=False)
        if done.returncode != 0:
            print(done.stderr[-4000:])
            return False
        short = [path for path in pathlib.Path(chosen).iterdir()
                 if path.stat().st_size <= FILE_BYTES_MAX]
        # Handwritten inputs and inputs of fixed findings stay: their names are not hashes.
        committed.mkdir(parents=True, exist_ok=True)
        for path in committed.iterdir():
            if re.fullmatch("[0-9a-f]{40}", path.name):
                path.unlink()
        room = FILES_MAX - len(list(committed.iterdir()))
        for path in sorted(short, key=lambda path: path.stat().st_size)[-max(room, 0):]:
            shutil.copy(path, committed / path.name)
    kept = list(committed.iterdir())
    print(f"fuzz: {target:<14} saved {len(kept):>3} files, "
          f"{sum(path.stat().st_size for path in kept):>6} bytes")
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--save", action="store_true")
    parser.add_argument("--build", action="store_true", help="build only, run nothing")
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    given = parser.parse_args()
    known = all_targets()
    for target in given.targets:
        if target not in known:
            parser.error(f"unknown target {target}; the targets are: {', '.join(known)}")
    targets = given.targets or known
    building = [f"fuzz_{target}" for target in targets]
    packages = {**os.environ, "PACKAGE_LIST": "tools/fuzz_packages.txt"}
    if subprocess.run(["tools/setup.sh"], cwd=REPOSITORY, check=False, env=packages).returncode:
        return 1
    if subprocess.run(["tools/build.sh", *building], cwd=REPOSITORY, check=False,
                      env={**os.environ, "PRESET": "fuzz"}).returncode != 0:
        print("fuzz: nothing ran, the build failed")
        return 1
    if given.build:
        return 0
    if given.save:
        return 0 if all([save(target) for target in targets]) else 1
    failed, executions = [], 0
    for target in targets:
        run = Run(target, max(1, round(given.minutes * 60)))
        if not run.run():
            failed.append(target)
        executions += run.executions
    if failed:
        print(f"fuzz: {len(failed)} of {len(targets)} targets FAILED: {', '.join(failed)}")
        return 1
    print(f"fuzz: {len(targets)} targets held over {executions:,} executions")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        print("fuzz: interrupted")
        sys.exit(130)
