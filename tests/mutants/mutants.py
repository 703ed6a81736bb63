#!/usr/bin/env python3
"""Each mutant that weft can be built with (src/base/mutant.h) is found by the simulator within 200 seeds,
and the same seed finds it again, bit for bit; all of them within SECONDS_MAX.

    tests/mutants/mutants.py [MUTANT...]     builds the preset `mutants` first
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
SCENARIOS = ("rpc", "bulk", "group")
SEEDS = 200
SECONDS_MAX = 180
# Mutants that another scenario finds sooner; the first scenario searches for all others first.
FIRST = {
    "bulk": {"late-write", "early-success", "grant-forgotten", "late-piece", "late-read", "lost-piece"},
    "group": {"child-forgotten", "adopted-twice", "reply-counted-twice", "filter-inverted",
              "stale-epoch-accepted", "level-budget-ignored", "orphan-kept",
              "slow-ranks-cancelled", "age-ignored"},
}


def sim(*arguments):
    done = subprocess.run([WEFT, "sim", "--nodes", "16", "--json", *arguments], text=True,
                          capture_output=True, timeout=600)
    if not done.stdout:
        return None, done.stderr[-2000:]  # The run crashed.
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def names():
    done = subprocess.run([WEFT, "sim", "--help"], text=True, capture_output=True, check=True,
                          timeout=60)
    return re.search(r"--mutant TEXT:\{([^}]*)\}", done.stdout).group(1).split(",")


def batches():
    """From seed 1 on, in small batches first: most mutants are found soon."""
    first, count = 1, 8
    while first <= SEEDS:
        count = min(count, SEEDS + 1 - first)
        yield first, count
        first, count = first + count, 4 * count


def repeats(chosen, seed):
    """The invariants that broke; None: the runs differ, or no history was printed."""
    again = [sim(*chosen, "--seeds", "1", "--first-seed", str(seed)) for _ in range(2)]
    if None in (again[0][0], again[1][0]) or again[0][0]["failed"] != 1:
        return None
    # The run is the same, and so is its whole output.
    if again[0][0]["trace_hash"] != again[1][0]["trace_hash"] or again[0][1] != again[1][1]:
        return None
    if "the last events before the first violation:" not in again[0][1]:
        return None
    return sorted(set(re.findall(r"^  ([a-z-]+):", again[0][1], re.M)) - {"again"})


def hunt(mutant):
    """(scenario, seed, invariants); no invariants: the run crashed, or could not be repeated, and
    proves nothing. None: no scenario finds the mutant."""
    for scenario in sorted(SCENARIOS, key=lambda one: mutant not in FIRST.get(one, ())):
        chosen = ("--scenario", scenario, "--mutant", mutant)
        for first, count in batches():
            result, _ = sim(*chosen, "--seeds", str(count), "--first-seed", str(first))
            if result is None:
                return scenario, None, None
            if result["failed"]:
                seed = result["first_failing_seed"]
                return scenario, seed, repeats(chosen, seed)
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
            print(f"mutants: {mutant:<20} {found[0]}, seed {found[1]}: {', '.join(found[2])}", flush=True)
        if found is None or found[2] is None:
            lost.append(mutant)
    seconds = time.monotonic() - begin
    if lost:
        print(f"mutants: {len(lost)} of {len(chosen)} live on: {', '.join(lost)}")
        return 1
    print(f"mutants: all {len(chosen)} found, each within {SEEDS} seeds, in {seconds:.0f} s"
          f" (of {SECONDS_MAX})")
    if seconds > SECONDS_MAX:
        print("mutants: the run took too long")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
