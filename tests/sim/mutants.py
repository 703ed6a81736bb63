#!/usr/bin/env python3
"""Each fault that weft can be built with (src/base/mutant.h) is found by the simulator within 200 seeds,
and the seed that found it finds it again, bit for bit.

    tests/sim/mutants.py [MUTANT...]     builds the preset `mutants` first
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WEFT = REPOSITORY / "build/mutants/bin/weft"
SCENARIOS = ("rpc", "bulk")
SEEDS = 200


def sim(*arguments):
    done = subprocess.run([WEFT, "sim", "--nodes", "16", "--json", *arguments], text=True,
                          capture_output=True, timeout=600)
    if not done.stdout:
        return None, done.stderr[-2000:]  # It crashed.
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def names():
    done = subprocess.run([WEFT, "sim", "--help"], text=True, capture_output=True, check=True,
                          timeout=60)
    return re.search(r"--mutant TEXT:\{([^}]*)\}", done.stdout).group(1).split(",")


def hunt(mutant):
    """Which scenario and seed finds it, and by which invariants; None: none does."""
    for scenario in SCENARIOS:
        chosen = ("--scenario", scenario, "--mutant", mutant)
        result, why = sim(*chosen, "--seeds", str(SEEDS), "--first-seed", "1")
        if result is None:
            return scenario, None, None  # It breaks itself: nothing was proved.
        if not result["failed"]:
            continue
        seed = str(result["first_failing_seed"])
        again = [sim(*chosen, "--seeds", "1", "--first-seed", seed) for _ in range(2)]
        if None in (again[0][0], again[1][0]) or again[0][0]["failed"] != 1 or again[0][0]["trace_hash"] != again[1][0]["trace_hash"]:
            return scenario, seed, None
        rules = sorted(set(re.findall(r"^  ([a-z-]+):", again[0][1], re.M)) - {"again"})
        return scenario, seed, ", ".join(rules)
    return None


def main():
    built = subprocess.run(["tools/build.sh", "bin/weft"], cwd=REPOSITORY,
                           env={**os.environ, "PRESET": "mutants"}, check=False)
    if built.returncode != 0:
        print("mutants: the build failed")
        return 1
    begin = time.monotonic()
    lost = []
    chosen = sys.argv[1:] or [name for name in names() if name != "none"]
    for scenario in SCENARIOS:
        result, why = sim("--scenario", scenario, "--seeds", str(SEEDS))
        if result is None or result["failed"]:
            print(f"mutants: {scenario} fails without one: {why}")
            return 1
    for mutant in chosen:
        found = hunt(mutant)
        if found is None:
            print(f"mutants: {mutant:<20} NOT FOUND in {SEEDS} seeds")
        elif found[2] is None:
            print(f"mutants: {mutant:<20} seed {found[1]} of {found[0]} can't be repeated")
        else:
            print(f"mutants: {mutant:<20} {found[0]}, seed {found[1]}: {found[2]}")
        if found is None or found[2] is None:
            lost.append(mutant)
    seconds = time.monotonic() - begin
    if lost:
        print(f"mutants: {len(lost)} of {len(chosen)} live on: {', '.join(lost)}")
        return 1
    print(f"mutants: all {len(chosen)} found, each within {SEEDS} seeds, in {seconds:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
