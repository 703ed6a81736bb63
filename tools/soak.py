#!/usr/bin/env python3
"""Runs the tests that take too long for continuous integration: once the whole suites under the
sanitizers and the packages in a clean root, then rounds of randomised tests until the time is used up.

    SOAK_MINUTES=60 tools/soak.py        the default, of the rounds; building is not counted
    tools/soak.py simulations cycles     these parts only

Once: a build by clang, thousands of simulated seeds a scenario, late writes, servers killed and stopped under
load, ranks stopped for two minutes, 64 processes that connect at once, overload, limits of times, and leaks of
clients that disconnect or are killed. A round: the randomised conformance tests from fresh seeds under each
build, peers killed over each transport, each fuzz target for a minute on top of its earlier findings, and the
demo. A failure does not end the soak: it is printed with the command that repeats it, and the last line is the
verdict over all.
"""
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
SANITIZED = ("tsan", "asan-ubsan")
BUILDS = ("release", *SANITIZED)
# A tag that no test has must fail: the programs run with --warn NoTests.
TAGGED = {"seeds": ("[seeded]", ("weft_unit", "weft_system", "weft_conformance")),
          "kills": ("[kill]", ("weft_conformance", "weft_integration"))}
STEP_SECONDS = 3600  # The whole suite under a sanitizer, on two busy cores.
CONTEXTS = ("1", "4")  # Of the servers.
PARTS = ("simulations", "mutants", "late_writes", "leaks", "ends", "cycles", "lanes", "pauses",
         "bursts", "times", "packages", "suites", "second_compiler", "rounds")
# Scenario, hosts, seeds, at least so many seeds a second, at least so many calls.
SIMULATED = (("rpc", 16, 20000, 15, 1_000_000), ("bulk", 16, 20000, 50, 0), ("group", 64, 2000, 5, 0),
             ("group", 1000, 200, 0, 0), ("bcast", 4096, 200, 0, 0))


def validate_simulation(pace_min, calls_min):
    """A check of the output of `weft sim --json`: returns the problem; empty: none."""
    def judge(output):
        verdicts = [line for line in output.splitlines() if line.startswith("{")]
        if not verdicts:
            return "no verdict"
        result = json.loads(verdicts[-1])
        pace = result["seeds"] / result["wall_s"]
        if result["calls"] < calls_min:
            return f"{result['calls']} calls, of {calls_min} at least"
        if pace < pace_min:
            return f"{pace:.1f} seeds a second, of {pace_min} at least"
        return ""
    return judge


class Soak:
    def __init__(self, minutes):
        self.seconds = minutes * 60
        self.failures = []
        self.done = {}

    def run(self, kind, title, command, judge=None, **environment):
        """Runs one step and shows its output if it failed. `judge` checks the output of a step with
        exit status 0 and returns the problem; empty: none."""
        begin = time.monotonic()
        given = " ".join(f"{name}={value}" for name, value in environment.items())
        process = subprocess.Popen(command, cwd=REPOSITORY, env={**os.environ, **environment},
                                   text=True, errors="replace", stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, start_new_session=True)
        try:
            output, _ = process.communicate(timeout=STEP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output = process.communicate()[0] + f"\nkilled after {STEP_SECONDS} s"
        except BaseException:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()
            raise
        wrong = judge(output) if judge and process.returncode == 0 else ""
        failed = process.returncode != 0 or bool(wrong)
        self.done[kind] = self.done.get(kind, 0) + 1
        print(f"soak: {title:<66} {'FAILED' if failed else 'held':<6} "
              f"{time.monotonic() - begin:7.1f} s", flush=True)
        if failed:
            self.failures.append(title)
            print("\n".join(output.splitlines()[-100:]))
            if wrong:
                print(f"soak: {wrong}")
            print(f"soak: repeat with: {given} {' '.join(map(repr, command))}".replace("  ", " "),
                  flush=True)
        return not failed

    def suites(self):
        for preset in SANITIZED:
            if self.build(preset):
                self.run("suites", f"the whole suite, {preset}", ["tools/test.sh"], PRESET=preset)

    def second_compiler(self):
        self.run("suites", "unit and conformance, clang", ["tools/test.sh"], PRESET="clang",
                 LABELS="unit|conformance")

    def simulations(self):
        for scenario, nodes, seeds, pace_min, calls_min in SIMULATED:
            first = str(random.randrange(1, 1 << 48))
            self.run("simulations", f"{seeds} seeds of {scenario}, {nodes} nodes, from {first}",
                     ["build/release/bin/weft", "sim", "--scenario", scenario, "--nodes", str(nodes),
                      "--seeds", str(seeds), "--first-seed", first, "--json"],
                     validate_simulation(pace_min, calls_min))

    def mutants(self):
        self.run("mutants", "each mutant is found", ["tests/mutants/mutants.py"])

    def late_writes(self):
        """100 000 transfers interrupted over each transport, 2000 over ofi+tcp; 1000 shutdowns of a runtime each."""
        for contexts in CONTEXTS:
            self.run("late writes", f"no late write, {contexts} contexts, release",
                     ["build/release/bin/weft_integration", "--warn", "NoTests", "[late]"],
                     TEST_SEED=str(random.randrange(1, 1 << 48)), TEST_CONTEXTS=contexts)

    def leaks(self):
        """Over each transport 1000 clients and 250 servers that disconnect, 100 of each that are killed."""
        for contexts in CONTEXTS:
            self.run("leaks", f"disconnected and killed peers leak nothing, {contexts} contexts",
                     ["build/release/bin/weft_leaks", "--warn", "NoTests", "[leaks]"],
                     TEST_SEED=str(random.randrange(1, 1 << 48)), TEST_CONTEXTS=contexts)

    def ends(self):
        """200 orderly shutdowns over each transport, with busy clients."""
        self.run("ends", "no reply is lost at an orderly shutdown, release",
                 ["build/release/bin/weft_system", "--warn", "NoTests", "[ends]"], ENDS="200")

    def cycles(self):
        """200 servers killed and restarted, 200 stopped and continued, under load; ten times the load."""
        for contexts in CONTEXTS:
            self.run("cycles", f"killed and stopped servers recover, {contexts} contexts, release",
                     ["build/release/bin/weft_integration", "--warn", "NoTests", "[cycles]"],
                     TEST_SEED=str(random.randrange(1, 1 << 48)), CYCLES="200",
                     TEST_CONTEXTS=contexts)
        self.run("submits", "a million submits in both directions allocate nothing, release",
                 ["build/release/bin/weft_alloc", "--warn", "NoTests", "[submits]"], SUBMITS="1000000")
        self.run("overload", "twenty seconds of ten times the load, release",
                 ["build/release/bin/weft_integration", "--warn", "NoTests", "[overload]"],
                 OVERLOAD_MS="20000")

    def lanes(self):
        """200 000 peers with a bulk lane that violates the protocol in the turn of its hello."""
        for contexts in CONTEXTS:
            self.run("lanes", f"lanes that break the rules and end, {contexts} contexts, release",
                     ["build/release/bin/weft_integration", "--warn", "NoTests", "[lanes]"],
                     LANES="100000", TEST_CONTEXTS=contexts)

    def bursts(self):
        """2048 channels of 64 processes at once over each transport; 1000 of one process; stopped servers."""
        self.run("bursts", "clients that connect at once are all served, release",
                 ["build/release/bin/weft_integration", "--warn", "NoTests", "[burst]"],
                 TEST_PROCESSES="64")

    def pauses(self):
        """Processes of a group that are stopped for longer than any rank keeps a collective."""
        for seconds in (45, 120):
            self.run("pauses", f"no handler runs twice after {seconds} s, release",
                     ["build/release/bin/weft_integration", "--warn", "NoTests", "[pause]"],
                     TEST_SEED=str(random.randrange(1, 1 << 48)), PAUSE_SECONDS=str(seconds))

    def times(self):
        """The cost of a timer, and a slow server beside a fast one, by medians."""
        self.run("times", "a timer is armed and cancelled in 40 ns, release",
                 ["build/release/bin/weft_alloc", "--warn", "NoTests", "[.times]"])
        self.run("times", "a fast server beside a slow one, release",
                 ["build/release/bin/weft_integration", "--warn", "NoTests",
                  "a slow server does not raise*"], FAST_PEER_MEDIAN="1")

    def packages(self):
        if self.run("packages", "build the Debian packages", ["tools/deb.sh"]):
            if os.geteuid() == 0:
                self.run("packages", "in a clean root", ["tests/package/clean_root.py"])
            else:
                print("soak: the clean root needs root, so it was skipped", flush=True)

    def round(self, number):
        for preset in BUILDS:
            for kind, (tag, programs) in TAGGED.items():
                seed = str(random.randrange(1, 1 << 48))
                for program in programs:
                    self.run(kind, f"{number}: {tag}, {preset}, {program}, seed {seed}",
                             ["tools/sanitized.sh", f"build/{preset}/bin/{program}",
                              "--warn", "NoTests", tag], TEST_SEED=seed, KILLS="50")
        self.run("fuzz rounds", f"{number}: the fuzz targets, a minute each",
                 ["tools/fuzz.py", "--minutes", "1"])
        self.run("demos", f"{number}: the demo", ["services/storage/demo.py"])

    def rounds(self):
        for preset in SANITIZED:
            if not self.build(preset):
                return
        if not self.run("builds", "build the fuzz targets", ["tools/fuzz.py", "--build"]):
            return
        end = time.monotonic() + self.seconds
        number = 0
        while number == 0 or time.monotonic() < end:
            number += 1
            self.round(number)

    def build(self, preset):
        return self.run("builds", f"build {preset}", ["tools/build.sh"], PRESET=preset)

    def soak(self, parts):
        if not self.build("release"):
            return
        for part in parts:
            getattr(self, part)()

    def verdict(self):
        ran = ", ".join(f"{count} {kind}" for kind, count in self.done.items())
        if self.failures:
            print(f"soak: {len(self.failures)} FAILED of {ran}: {'; '.join(self.failures)}")
            return 1
        print(f"soak: everything held: {ran}")
        return 0


def main():
    given = os.environ.get("SOAK_MINUTES", "60")
    if not re.fullmatch(r"\d+(\.\d+)?", given):
        print(f"soak: SOAK_MINUTES={given} is not a number of minutes")
        return 64
    parts = sys.argv[1:] or PARTS
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"soak: unknown part {' '.join(unknown)}; the parts are {', '.join(PARTS)}")
        return 64
    soak = Soak(float(given))
    try:
        soak.soak(parts)
    except KeyboardInterrupt:
        print("soak: interrupted")
        soak.verdict()
        return 130
    return soak.verdict()


if __name__ == "__main__":
    sys.exit(main())
