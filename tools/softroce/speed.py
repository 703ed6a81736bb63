#!/usr/bin/env python3
"""Runs in the guest: compares weft over verbs with perftest on the same device, interleaved, by medians of
rounds. Counts the device's operations for a call, too; these counts are exact. Times of an emulated
processor are meaningless, only these ratios are not.

    tools/softroce/speed.py HOST [--rounds 5]
"""
import argparse
import json
import re
import statistics
import subprocess
import sys
import time

WEFT = "build/release/bin/weft"
# Of weft to twice perftest's one-way time, and to its bandwidth.
LATENCY_MAX = 1.6
BANDWIDTH_MIN = 0.9


def perftest(program, host, column, *options):
    """A column of the last line of figures of a client and a server; 0 means not measured: retried."""
    command = [program, "-F", "-d", "rxe0", *options]
    server = None
    try:
        for _ in range(50):
            if server is None or server.poll() is not None:
                server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            time.sleep(0.1)
            done = subprocess.run([*command, host], text=True, capture_output=True, timeout=60)
            lines = [line.split() for line in done.stdout.splitlines() if re.match(r"\s*\d", line)]
            if done.returncode == 0 and lines and float(lines[-1][column]) > 0:
                return float(lines[-1][column])
        raise SystemExit(f"speed: {program} does not run: {done.stdout}{done.stderr}")
    finally:
        server.terminate()
        server.wait()


def weft(*options):
    done = subprocess.run([WEFT, "perf", *options, "--transport", "verbs", "--json"], text=True,
                          capture_output=True, timeout=120)
    if done.returncode != 0:
        raise SystemExit(f"speed: weft perf {' '.join(options)}: {done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def latency(host):
    theirs = 2 * perftest("ib_send_lat", host, 4, "-s", "64", "-n", "1000") * 1000
    return weft("rpc", "--size", "64", "--spin", "--seconds", "1")["p50_ns"], theirs


def bandwidth(host, program, metric):
    theirs = perftest(program, host, 3, "-s", "1048576", "-n", "60")
    # perftest keeps up to 128 transfers in flight, and its idle end sleeps.
    return weft(metric, "--size", "1MiB", "--inflight", "16", "--seconds", "2")["mib_per_s"], theirs


def ledger(*options):
    return weft("rpc", "--size", "64", "--spin", "--seconds", "1", "--ledger", *options)["ledger"]


def check_ledger():
    """Yields a line for each count that differs from its limit."""
    alone, crowd = ledger(), ledger("--inflight", "64")
    for side in ("client", "server"):
        for name, exact in (("doorbells", 1), ("work requests", 1), ("inline sends", 1),
                            ("payload reads", 0), ("messages in", 1)):
            found = alone[name][side]
            print(f"speed: one in flight, {side}: {found:.3f} {name}")
            if abs(found - exact) > 0.02:
                yield f"{side}: {found:.3f} {name} a call instead of {exact}"
        for name, share, of in (("doorbells", 1 / 8, 1), ("send completions", 1 / 16, "work requests")):
            base = of if isinstance(of, int) else crowd[of][side]
            found = crowd[name][side] / base
            print(f"speed: 64 in flight, {side}: {found:.3f} {name}" +
                  ("" if of == 1 else " a send"))
            if found > share * 1.02:
                yield f"{side}: {found:.3f} {name}, at most {share:.3f} allowed"


def main():
    parser = argparse.ArgumentParser(description="weft beside perftest")
    parser.add_argument("host")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    rows = {"64 B there and back": [], "get of 1 MiB": [], "put of 1 MiB": []}
    for _ in range(given.rounds):
        rows["64 B there and back"].append(latency(given.host))
        rows["get of 1 MiB"].append(bandwidth(given.host, "ib_read_bw", "get"))
        rows["put of 1 MiB"].append(bandwidth(given.host, "ib_write_bw", "put"))
    failures = []
    for name, pairs in rows.items():
        ratio = statistics.median(ours / theirs for ours, theirs in pairs)
        ours, theirs = (statistics.median(side) for side in zip(*pairs))
        is_time = name.startswith("64")
        unit = "ns" if is_time else "MiB/s"
        print(f"speed: {name:<20} {ours:10.0f} {unit:<5} perftest {theirs:10.0f}   ratio {ratio:.2f}")
        if ratio > LATENCY_MAX if is_time else ratio < BANDWIDTH_MIN:
            failures.append(f"{name}: ratio {ratio:.2f}")
    failures += check_ledger()
    print("speed: " + ("FAILED: " + "; ".join(failures) if failures else "everything held"))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
