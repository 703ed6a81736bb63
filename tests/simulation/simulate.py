#!/usr/bin/env python3
"""`weft sim` passes, each invariant was checked, and the same seed gives the same run.
    simulate.py WEFT SCENARIO SEEDS"""
import json
import pathlib
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WEFT, SCENARIO, SEEDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
CALLS = {"rpc": 1000, "bulk": 200, "group": 8}  # Per seed, at least.
NODES = {"group": "64"}
RULES_MIN = 25


def sim(*arguments):
    done = subprocess.run([WEFT, "sim", "--scenario", SCENARIO, "--nodes", NODES.get(SCENARIO, "16"), "--json", *arguments],
                          stdout=subprocess.PIPE, text=True, timeout=900)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (13 if result["failed"] else 0), done.returncode
    return result


def check_repeats():
    """The same seeds give the same run, beside any other seeds; other seeds another run."""
    runs = [sim("--seeds", "10"), sim("--seeds", "10", "--jobs", "1"),
            sim("--seeds", "10", "--first-seed", "11")]
    hashes = [run["trace_hash"] for run in runs]
    assert hashes[0] == hashes[1], f"the same seeds gave {hashes[0]} and {hashes[1]}"
    assert hashes[0] != hashes[2], f"other seeds gave {hashes[0]}, too"
    alone = [int(sim("--seeds", "1", "--first-seed", str(seed))["trace_hash"], 16) for seed in range(1, 11)]
    assert len(set(alone)) == 10, "two seeds gave the same run"
    together = 0
    for one in alone:
        together ^= one
    assert f"{together:016x}" == hashes[0], "a seed alone gives another run than among others"


def main():
    check_repeats()
    result = sim("--seeds", str(SEEDS), "--rules")
    print(f"{result['seeds']} seeds in {result['wall_s']:.1f} s, {result['calls']} calls, "
          f"{result['faults']} faults, trace {result['trace_hash']}")
    assert result["failed"] == 0, f"the first that failed is {result['first_failing_seed']}"
    assert result["calls"] >= CALLS[SCENARIO] * SEEDS, "a seed has too few calls"
    assert result["faults"] > SEEDS, "nothing was broken"
    idle = [rule["name"] for rule in result["rules"] if rule["judged"] == 0]
    assert not idle, f"nothing to check for {', '.join(idle)}"
    assert len(result["rules"]) >= RULES_MIN, f"only {len(result['rules'])} invariants were checked"
    documented = (REPOSITORY / "docs/testing.md").read_text(encoding="utf-8")
    unknown = [rule["name"] for rule in result["rules"] if f"| `{rule['name']}` |" not in documented]
    assert not unknown, f"docs/testing.md does not list {', '.join(unknown)}"
    print(f"sim: all {len(result['rules'])} invariants hold; the least was checked "
          f"{min(rule['judged'] for rule in result['rules'])} times")


main()
