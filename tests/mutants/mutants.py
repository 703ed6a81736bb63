#!/usr/bin/env python3
"""Each mutant (tests/mutants/*.patch) is found by the simulator within 200 seeds, by an invariant or an
assertion, and the same seed finds it again; all of them within SECONDS_MAX.

    tests/mutants/mutants.py [MUTANT...]   builds the preset `mutants` of a patched copy first
    tests/mutants/mutants.py --check       each patch applies, and guards its fault by its own name
"""
import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
PATCHES = sorted((REPOSITORY / "tests/mutants").glob("*.patch"))
# A copy of what the command is built from, with all patches: mutant.h chooses one of them at run time.
COPY = REPOSITORY / "build/mutated"
COPIED = ("CMakeLists.txt", "CMakePresets.json", "cmake", "examples", "include", "proto", "services", "src",
          "tests/simulation", "tools")
WEFT = COPY / "build/mutants/bin/weft"
SCENARIOS = ("rpc", "bulk", "group")
SEEDS = 200
SECONDS_MAX = 180
# Mutants that another scenario finds sooner; the first scenario searches for all others first.
FIRST = {
    "bulk": {"late-write", "early-success", "grant-forgotten", "late-piece", "late-read", "lost-piece",
             "granted-elsewhere"},
    "group": {"child-forgotten", "adopted-twice", "reply-counted-twice", "filter-inverted",
              "stale-epoch-accepted", "level-budget-ignored", "orphan-kept",
              "slow-ranks-cancelled", "age-ignored"},
}


def files_of(*places):
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *places], cwd=REPOSITORY,
                            text=True, capture_output=True, check=True)
    return [path for path in listed.stdout.splitlines() if (REPOSITORY / path).is_file()]


def copy_file(source, target):
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    shutil.copymode(source, target)


def patch(tree):
    """Returns the number of patches that don't apply to the sources in `tree`, or have no guard of their name."""
    wrong = 0
    patched = set()
    for one in PATCHES:
        # One line of context: other changes of the same function matter to no patch.
        applied = subprocess.run(["git", "apply", "-C1", one], cwd=tree, text=True, capture_output=True, check=False)
        if applied.returncode:
            print(f"mutants: {one.relative_to(REPOSITORY)} does not apply:\n{applied.stderr}", end="")
        text = one.read_text(encoding="utf-8")
        patched.update(re.findall(r"^\+\+\+ b/(\S+)$", text, re.M))
        guards = set(re.findall(r'is_mutated\("([^"]*)"\)', text))
        if guards != {one.stem}:
            print(f"mutants: {one.relative_to(REPOSITORY)} guards its fault by {sorted(guards)}, not by its name")
        wrong += applied.returncode != 0 or guards != {one.stem}
    # Only the patched files include the choice: the others compile as in `release`, which ccache shares.
    for path in patched:
        source = tree / path
        source.write_text('#include "base/mutant.h"\n' + source.read_text(encoding="utf-8"), encoding="utf-8")
    copy_file(REPOSITORY / "tests/mutants/mutant.h", tree / "src/base/mutant.h")
    return wrong


def check():
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory)
        for path in files_of("src"):
            copy_file(REPOSITORY / path, tree / path)
        return patch(tree)


def make_copy():
    """Brings the copy up to date. Files that stay equal keep their times, so that little is built again."""
    with tempfile.TemporaryDirectory() as directory:
        tree = pathlib.Path(directory)
        for path in files_of(*COPIED):
            copy_file(REPOSITORY / path, tree / path)
        wrong = patch(tree)
        paths = {str(path.relative_to(tree)) for path in tree.rglob("*") if path.is_file()}
        for old in [path for top in COPIED for path in (COPY / top).rglob("*") if path.is_file()]:
            if str(old.relative_to(COPY)) not in paths:
                old.unlink()
        for path in paths:
            if not (COPY / path).exists() or not filecmp.cmp(tree / path, COPY / path, shallow=False):
                copy_file(tree / path, COPY / path)
        return wrong


def sim(mutant, *arguments):
    done = subprocess.run([WEFT, "sim", "--nodes", "16", "--json", *arguments], text=True, capture_output=True,
                          timeout=600, env={**os.environ, "MUTANT": mutant})
    if not done.stdout:
        return None, done.stderr  # The run crashed.
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


def batches():
    """From seed 1 on, in small batches first: most mutants are found soon."""
    first, count = 1, 8
    while first <= SEEDS:
        count = min(count, SEEDS + 1 - first)
        yield first, count
        first, count = first + count, 4 * count


def repeats(mutant, scenario, seed):
    """The invariants that broke; None: the runs differ, or no history was printed."""
    again = [sim(mutant, "--scenario", scenario, "--seeds", "1", "--first-seed", str(seed)) for _ in range(2)]
    if None in (again[0][0], again[1][0]) or again[0][0]["failed"] != 1:
        return None
    # The run is the same, and so is its whole output.
    if again[0][0]["trace_hash"] != again[1][0]["trace_hash"] or again[0][1] != again[1][1]:
        return None
    if "the last events before the first violation:" not in again[0][1]:
        return None
    return sorted(set(re.findall(r"^  ([a-z-]+):", again[0][1], re.M)) - {"again"})


def assertion(mutant, scenario, seed):
    """The assertion that ends the run of this seed; None: another end."""
    result, errors = sim(mutant, "--scenario", scenario, "--seeds", "1", "--first-seed", str(seed))
    failed = re.search(r"^weft: assertion failed: (.*) \(", errors, re.M) if result is None else None
    return failed[1] if failed else None


def crash(mutant, scenario, seeds):
    """(scenario, seed, assertion) of the first seed that ends by an assertion, twice by the same one."""
    for seed in seeds:
        failed = assertion(mutant, scenario, seed)
        if failed:
            return scenario, seed, [failed] if failed == assertion(mutant, scenario, seed) else None
    return scenario, None, None


def hunt(mutant):
    """(scenario, seed, invariants or assertion); neither: the run crashed otherwise, or could not be
    repeated, and proves nothing. None: no scenario finds the mutant."""
    for scenario in sorted(SCENARIOS, key=lambda one: mutant not in FIRST.get(one, ())):
        for first, count in batches():
            result, _ = sim(mutant, "--scenario", scenario, "--seeds", str(count), "--first-seed", str(first))
            if result is None:
                return crash(mutant, scenario, range(first, first + count))
            if result["failed"]:
                seed = result["first_failing_seed"]
                return scenario, seed, repeats(mutant, scenario, seed)
    return None


def build():
    if make_copy():
        return False
    return subprocess.run([COPY / "tools/build.sh", "weft_cli", "weft_sim_cli"], check=False,
                          env={**os.environ, "PRESET": "mutants"}).returncode == 0


def find(chosen):
    """Those that are not found, or not in the same way again."""
    lost = []
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
    return lost


def main():
    if sys.argv[1:] == ["--check"]:
        wrong = check()
        print(f"mutants: {len(PATCHES) - wrong} of {len(PATCHES)} patches apply")
        return 1 if wrong else 0
    chosen = sys.argv[1:] or [one.stem for one in PATCHES]
    unknown = set(chosen) - {one.stem for one in PATCHES}
    if unknown:
        print(f"mutants: there is no patch {', '.join(sorted(unknown))}")
        return 64
    if not build():
        print("mutants: the build failed")
        return 1
    begin = time.monotonic()
    for scenario in SCENARIOS:
        result, why = sim("", "--scenario", scenario, "--seeds", str(SEEDS))
        if result is None or result["failed"]:
            print(f"mutants: {scenario} fails without one: {why}")
            return 1
    lost = find(chosen)
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
