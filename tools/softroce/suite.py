#!/usr/bin/env python3
"""Runs in the guest: `weft perf --suite rdma` as a user starts it, both ends on this machine. The suite must
fill every field of its report; the values of the figures are not checked.

    tools/softroce/suite.py
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

WEFT = "build/release/bin/weft"
COMMAND = [WEFT, "perf", "--suite", "rdma", "--seconds", "0.1", "--json", "--report"]
SERIES = ("round_trip_ns", "round_trip_p99_ns", "bare_ns", "rate_per_s", "get_64k_mib_per_s",
          "get_1m_mib_per_s", "put_64k_mib_per_s", "put_1m_mib_per_s")
ROUNDS = 3
MECHANISMS = 8  # Each can be turned off.


def validate(result, report):
    """The problems of a result and its report, a line each."""
    wrong = [f"not measured: {missing}" for missing in result["missing"]]
    if result["error"]:
        wrong.append(f"failed: {result['error']}")
    series = {name: result["rounds"][name] for name in SERIES} | result["perftest"]
    for name, figures in series.items():
        rounds = figures["rounds"]
        if len(rounds) != ROUNDS or min(rounds) <= 0:
            wrong.append(f"{name}: {rounds}, instead of {ROUNDS} figures")
    rows = result["switches"]
    if len(rows) != MECHANISMS + 1 or any(row["round_trip_ns"] is None for row in rows):
        wrong.append(f"{len(rows)} rows of mechanisms, or some without a figure: {rows}")
    if not result["ratios"] or None in result["ratios"].values():
        wrong.append(f"ratios to perftest: {result['ratios']}")
    if result["client"]["device"]["name"] != "rxe0":
        wrong.append(f"measured on {result['client']['device']}")
    name = os.uname().nodename
    for part in ("## Beside perftest", "## Each mechanism turned off", "## Operations of the devices"):
        if part not in report:
            wrong.append(f"the report has no part {part}")
    if name in report:
        wrong.append(f"the report contains the name of this host, {name}")
    return wrong


def main():
    with tempfile.TemporaryDirectory(prefix="weft-suite-") as place:
        path = pathlib.Path(place) / "report.md"
        done = subprocess.run([*COMMAND, str(path)], text=True, capture_output=True, check=False)
        print(done.stderr, end="")
        if not done.stdout.startswith("{"):
            print(f"suite: exit status {done.returncode}, and no result: {done.stdout}")
            return 1
        report = path.read_text(encoding="utf-8")
    result = json.loads(done.stdout)
    print(json.dumps(result, indent=1))
    print(report)
    wrong = validate(result, report)
    if done.returncode != 0:
        wrong.append(f"exit status {done.returncode}")
    print("\n".join(f"suite: {line}" for line in wrong or ["everything was measured"]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
