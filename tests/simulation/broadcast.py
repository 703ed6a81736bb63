#!/usr/bin/env python3
"""`weft sim --scenario bcast`: its cost at full size, or that every rank has its outcome
whichever ranks die.
    broadcast.py WEFT size|faults"""
import json
import pathlib
import resource
import subprocess
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
WEFT, PART = sys.argv[1], sys.argv[2]
NODES = 131072
OVER_BOUND_MAX, STATE_BYTES_MAX = 1.15, 256
RESIDENT_KIB_MAX = 1 << 20  # Half of the allowed maximum.
SECONDS_MAX = 50 if "--sanitized" not in sys.argv else 500


def sim(*arguments):
    done = subprocess.run([WEFT, "sim", "--scenario", "bcast", "--json", *arguments],
                          stdout=subprocess.PIPE, text=True, timeout=900)
    result = json.loads(done.stdout.splitlines()[-1])
    assert done.returncode == (13 if result["failed"] else 0), done.returncode
    assert result["failed"] == 0, f"the first that failed is {result['first_failing_seed']}"
    return result


def check_size():
    result = sim("--nodes", str(NODES), "--jobs", "1")
    assert result["seeds"] == 1, "more than one seed without a request for more"
    assert 1 <= result["over_bound"] <= OVER_BOUND_MAX, result["over_bound"]
    assert 0 < result["state_bytes_mean"] <= STATE_BYTES_MAX, result["state_bytes_mean"]
    assert result["wall_s"] < SECONDS_MAX, f"{result['wall_s']:.1f} s"
    assert result["operation_bytes"] > 0
    assert len(result["models"]) == 2
    # The tree of the first model is not made for it, and the root detects that.
    first = result["models"][0]
    assert first["over_bound"] < 1.08 < OVER_BOUND_MAX < first["default_over_bound"], first
    for model in result["models"]:
        assert model["messages"] == 2 * (NODES - 1), model["messages"]
        assert model["over_bound"] <= result["over_bound"], "not the worst of both"
        assert model["over_bound"] == model["delivered_us"] / model["bound_us"]
        assert 1 <= model["exact_over_bound"] <= model["over_bound"] + 0.01, "not known, and as good"
        orders = {row["order"]: row for row in model["orders"]}
        assert orders["greedy"]["delivered_us"] == model["delivered_us"], "ranks and model differ"
        assert orders["greedy"]["acknowledged_us"] == model["acknowledged_us"]
        assert orders["k-nomial 32, order of CaRT"]["delivered_us"] > 4 * model["delivered_us"]
    resident = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    if "--sanitized" not in sys.argv:
        assert resident < RESIDENT_KIB_MAX, f"{resident} KiB resident"
    print(f"bcast: {NODES} ranks, {result['over_bound']:.3f} of the bound, "
          f"{result['state_bytes_mean']:.1f} bytes a rank, {result['wall_s']:.1f} s, {resident} KiB resident")


def check_faults():
    runs = [sim("--nodes", "300", "--seeds", "20"), sim("--nodes", "300", "--seeds", "20", "--jobs", "1"),
            sim("--nodes", "300", "--seeds", "20", "--first-seed", "21")]
    hashes = [run["trace_hash"] for run in runs]
    assert hashes[0] == hashes[1], f"the same seeds gave {hashes[0]} and {hashes[1]}"
    assert hashes[0] != hashes[2], f"other seeds gave {hashes[0]}, too"
    assert runs[0]["over_bound"] and runs[2]["over_bound"] is None, "a run with faults has no bound"
    for nodes in (2, 3, 17, 64):
        sim("--nodes", str(nodes), "--seeds", "200")
    result = sim("--nodes", "1000", "--seeds", "100", "--rules")
    assert result["faults"] == 99 * 2 * 10, result["faults"]
    idle = [rule["name"] for rule in result["rules"] if rule["judged"] == 0]
    assert not idle, f"nothing to check for {', '.join(idle)}"
    documented = (REPOSITORY / "docs/testing.md").read_text(encoding="utf-8")
    unknown = [rule["name"] for rule in result["rules"] if f"| `{rule['name']}` |" not in documented]
    assert not unknown, f"docs/testing.md does not list {', '.join(unknown)}"
    print(f"bcast: {result['faults']} deaths among {result['calls']} requests, all {len(result['rules'])} "
          "invariants hold")


{"size": check_size, "faults": check_faults}[PART]()
