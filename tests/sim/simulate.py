#!/usr/bin/env python3
"""`weft sim` holds, and the same seed gives the same run.  simulate.py WEFT SCENARIO SEEDS"""
import json
import subprocess
import sys

WEFT, SCENARIO, SEEDS = sys.argv[1], sys.argv[2], int(sys.argv[3])
CALLS = {"rpc": 1000, "bulk": 200}  # A seed, at least.


def sim(*arguments):
    done = subprocess.run([WEFT, "sim", "--scenario", SCENARIO, "--nodes", "16", "--json", *arguments],
                          stdout=subprocess.PIPE, text=True, timeout=900)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (13 if result["failed"] else 0), done.returncode
    return result


def main():
    runs = [sim("--seeds", "10"), sim("--seeds", "10", "--jobs", "1"),
            sim("--seeds", "10", "--first-seed", "11")]
    hashes = [run["trace_hash"] for run in runs]
    assert hashes[0] == hashes[1], f"the same seeds gave {hashes[0]} and {hashes[1]}"
    assert hashes[0] != hashes[2], f"other seeds gave {hashes[0]}, too"

    result = sim("--seeds", str(SEEDS))
    print(f"{result['seeds']} seeds in {result['wall_s']:.1f} s, {result['calls']} calls, "
          f"{result['faults']} faults, trace {result['trace_hash']}")
    assert result["failed"] == 0, f"the first that failed is {result['first_failing_seed']}"
    assert result["calls"] >= CALLS[SCENARIO] * SEEDS, "a seed has too few calls"
    assert result["faults"] > SEEDS, "nothing was broken"
    print("sim: all invariants hold")


main()
