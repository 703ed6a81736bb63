#!/usr/bin/env python3
"""Prints a table of `weft perf` metrics beside their floors; `make bench` runs it.

The virtual cpus of a test machine drift, so the metrics run interleaved, in another order each
round, and each run measures its own floors; the medians of the rounds are printed. A run with
floors outside the quiet range does not count and is repeated a few times.

The last line is the verdict; the exit status is 1 when a run failed, a goal is missed or the curve
of sizes has a step.
"""
import argparse
import json
import os
import random
import statistics
import subprocess
import sys

METRICS = [  # name, arguments of weft perf
    ("rpc 64 B", "rpc --transport sm --size 64 --spin"),
    ("rpc 64 B x64", "rpc --transport sm --size 64 --inflight 64 --spin"),
    ("rpc 4 KiB", "rpc --transport sm --size 4KiB --reply-size 64 --spin"),
    ("rpc 32 KiB", "rpc --transport sm --size 32KiB --reply-size 64 --spin"),
    ("proto 64 B", "proto --transport sm --size 64 --spin"),
    ("na 64 B", "na --transport sm --size 64 --spin"),
    ("get 64 KiB", "get --transport sm --size 64KiB --spin"),
    ("get 1 MiB", "get --transport sm --size 1MiB --spin"),
    ("put 1 MiB", "put --transport sm --size 1MiB --spin"),
    ("beside 64 MiB", "rpc --transport sm --size 64 --spin --beside get"),
    ("rpc 64 B tcp", "rpc --transport tcp --size 64 --spin"),
    ("rpc 64 B x64 tcp", "rpc --transport tcp --size 64 --inflight 64 --spin"),
    ("rpc 4 KiB tcp", "rpc --transport tcp --size 4KiB --reply-size 64 --spin"),
    ("beside 64 MiB tcp", "rpc --transport tcp --size 64 --spin --beside get"),
    ("get 4 MiB tcp", "get --transport tcp --size 4MiB --spin"),
    ("put 4 MiB tcp", "put --transport tcp --size 4MiB --spin"),
    ("rpc 64 B unix", "rpc --transport unix --size 64 --spin"),
    ("rpc 64 B ofi+tcp", "rpc --transport ofi+tcp --size 64 --spin"),
    ("get 1 MiB ofi+tcp", "get --transport ofi+tcp --size 1MiB --spin"),
]
# Goals for medians: name, figure computed from the rows, comparison, bound. One percent of the calls
# beside a transfer is about 700 a second, and a virtual machine may stop its cpus that often.
# Therefore p99 is that of the least disturbed round.
GOALS = [
    ("sm: p50 of 64 B over two floors and 260 ns",
     lambda row: row["rpc 64 B"]["p50"] / (2 * row["rpc 64 B"]["floor"] + 260), "<=", 1),
    ("tcp: p50 of 64 B over its floor", lambda row: row["rpc 64 B tcp"]["over"], "<=", 1.15),
    ("tcp: calls a second, 64 in flight", lambda row: row["rpc 64 B x64 tcp"]["rate"], ">=", 800e3),
    ("tcp: p50 of 4 KiB over that of 64 B",
     lambda row: row["rpc 4 KiB tcp"]["p50"] / row["rpc 64 B tcp"]["p50"], "<=", 1.3),
    ("tcp: a get of 4 MiB, of the raw stream",
     lambda row: 1 / row["get 4 MiB tcp"]["over"], ">=", 0.85),
    ("tcp: a put of 4 MiB, of the raw stream",
     lambda row: 1 / row["put 4 MiB tcp"]["over"], ">=", 0.85),
    ("tcp: p99 beside 64 MiB over that alone",
     lambda row: row["beside 64 MiB tcp"]["least_p99"] / row["rpc 64 B tcp"]["least_p99"], "<=", 4),
]
SWEEP_SIZES = range(2048, 16384 + 1, 512)
SWEEP_STEP_MAX = 1.4
CURVE_SIZES = [1 << k for k in range(10, 27)]
CURVE_STEP_MAX = 1.3
CACHES_SIZES = [64, 1 << 12, 1 << 13, 1 << 14, 1 << 15, 1 << 16, 1 << 17, 1 << 18]
CACHES_JUDGED = 1 << 16  # A call is no slower than the same copies by plain stores, on any cpus.
FAR_FLOOR_NS = 180  # Above this floor, the two cpus share no cache.
QUIET_FLOOR_NS = (60, 150)
QUIET_DRIFT = 0.2


class Failed(Exception):
    pass


def run(weft, arguments, seconds):
    command = [weft, "perf", *arguments.split(), "--seconds", str(seconds), "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=seconds + 60)
    if done.returncode != 0:
        raise Failed(f"{' '.join(command)}: {done.stderr.strip()}")
    return json.loads(done.stdout)


def is_steady(result):
    return result["floor_ns"] is not None and result["floor_drift"] <= QUIET_DRIFT


def counts(result):
    """Whether a run counts: each needs a steady floor, a latency over sm also a quiet cache line."""
    line = result["transport"] == "sm" and result["metric"] not in ("put", "get")
    return is_steady(result) and (
        not line or QUIET_FLOOR_NS[0] <= result["floor_ns"] <= QUIET_FLOOR_NS[1])


def run_quiet(weft, arguments, seconds, tries, good=counts):
    for _ in range(tries):
        result = run(weft, arguments, seconds)
        if good(result):
            return result, True
    return result, False


def transports(weft):
    done = subprocess.run([weft, "info", "--json"], capture_output=True, text=True, timeout=60)
    found = json.loads(done.stdout)["transports"]
    return {transport["scheme"] for transport in found if transport["usable"]}


def human_ns(value):
    for limit, unit in ((1e9, "s"), (1e6, "ms"), (1e3, "us")):
        if value >= limit:
            return f"{value / limit:.2f} {unit}"
    return f"{value:.0f} ns"


def human_bytes(value):
    for limit, unit in ((1 << 20, "MiB"), (1 << 10, "KiB")):
        if value >= limit:
            return f"{value // limit} {unit}"
    return f"{value} B"


def table(weft, rounds, seconds, tries):
    usable = transports(weft)
    metrics = [(name, arguments) for name, arguments in METRICS
               if arguments.split()[2] in usable]
    results = {name: [] for name, _ in metrics}
    quiet = 0
    for _ in range(rounds):
        for name, arguments in random.sample(metrics, len(metrics)):
            longer = 2 if "--beside" in arguments else 1  # 20,000 calls at least.
            result, good = run_quiet(weft, arguments, longer * seconds, tries)
            results[name].append((result, good))
            quiet += good
    print(f"{'':18} {'p50':>10} {'p99':>10} {'floor':>10} {'p50/floor':>10} "
          f"{'rate/s':>10} {'rate x floor':>12} {'counted':>8}")
    rows = {}
    for name, _ in metrics:
        good = [result for result, ok in results[name] if ok]
        chosen = good or [result for result, _ in results[name]]
        if any(result["p50_ns"] is None or result["floor_ns"] is None for result in chosen):
            print(f"{name:18} no figure: the window was too short or no floor could be measured")
            continue

        def median(value, of=chosen):
            return statistics.median(value(result) for result in of)
        row = {"p50": median(lambda r: r["p50_ns"]), "p99": median(lambda r: r["p99_ns"]),
               "least_p99": min(r["p99_ns"] for r in chosen),
               "floor": median(lambda r: r["floor_ns"]),
               "over": median(lambda r: r["p50_ns"] / r["floor_ns"]),
               "rate": median(lambda r: r["rate_per_s"]),
               "rate_floors": median(lambda r: r["rate_per_s"] * r["floor_ns"] / 1e9)}
        rows[name] = row
        print(f"{name:18} {human_ns(row['p50']):>10} {human_ns(row['p99']):>10} "
              f"{human_ns(row['floor']):>10} {row['over']:>10.2f} {row['rate']:>10.0f} "
              f"{row['rate_floors']:>12.2f} {len(good):>4}/{rounds}")
    return rows, quiet, rounds * len(metrics)


def validate(rows, usable):
    """The number of goals of the usable transports that were missed or not measured."""
    print()
    missed = 0
    for what, figure, sense, bound in GOALS:
        if not any(what.startswith(f"{transport}:") for transport in usable):
            continue
        try:
            value = figure(rows)
        except KeyError as row:
            missed += 1
            print(f"goal: {what:45} NOT MEASURED: no figure of {row}")
            continue
        good = value <= bound if sense == "<=" else value >= bound
        missed += not good
        verdict = "" if good else "MISSED"
        print(f"goal: {what:45} {value:>12,.2f} {sense} {bound:<9,g} {verdict}".rstrip())
    return missed


def sweep(weft, rounds, seconds, tries, sizes):
    """Prints the median p50 of each size; returns the largest step and its size.

    Only runs that count are used: while two virtual cpus share a core, a copy costs a third. Some
    such runs pass as quiet, so the minimum of a size is meaningless.
    """
    runs, uncounted = {size: [] for size in sizes}, 0
    for _ in range(rounds):
        for size in random.sample(sizes, len(sizes)):
            result, good = run_quiet(
                weft, f"rpc --transport sm --size {size} --reply-size 64 --spin", seconds, tries)
            if good:
                runs[size].append(result["p50_ns"])
            else:
                uncounted += 1
    middle = {size: statistics.median(found) for size, found in runs.items() if found}
    print("\nrpc over sm by size: " + ", ".join(
        f"{size} B {middle[size]:.0f} ns" if size in middle else f"{size} B -" for size in sizes))
    if uncounted:
        print(f"{uncounted} of {rounds * len(sizes)} runs did not count")
    measured = [size for size in sizes if size in middle]
    return max(((middle[b] / middle[a], b) for a, b in zip(measured, measured[1:])),
               default=(0, 0))


def curve(weft, rounds, seconds, tries, sizes, transport):
    """The time of a call over the floor of the same copies, by size: medians of the rounds.

    Returns the largest growth from one size to its double, and its place. A ratio below 1 counts as
    1: where the floor leaves a cache one size earlier, weft has no step. Also printed: the largest
    growth with ratios below 1, and that of the minimum calls over the minimum floors, which is the
    cost without disturbance.
    """
    runs = {size: [] for size in sizes}
    for _ in range(rounds):
        for size in random.sample(sizes, len(sizes)):
            result, _ = run_quiet(weft, f"rpc --transport {transport} --size {size} "
                                  "--reply-size 64 --spin --copied-floor", seconds, tries,
                                  is_steady)
            if result["p50_ns"] is not None and result["floor_ns"] is not None:
                runs[size].append((result["p50_ns"], result["floor_ns"]))
    over = {size: statistics.median(call / floor for call, floor in found)
            for size, found in runs.items() if found}
    least = {size: min(call for call, _ in found) / min(floor for _, floor in found)
             for size, found in runs.items() if found}
    print(f"\nrpc over {transport}, over the floor of the same copies (least of each): " + ", ".join(
        f"{human_bytes(size)} {over[size]:.2f} ({least[size]:.2f})" for size in over))
    doubled = [size for size in over if 2 * size in over]
    print(f"largest growth per doubling over {transport}, below the floor too: "
          f"{max((over[2 * size] / over[size] for size in doubled), default=0):.2f}, "
          f"of the least {max((least[2 * size] / least[size] for size in doubled), default=0):.2f}")
    return max(((max(1, over[2 * size]) / max(1, over[size]),
                 f"{human_bytes(2 * size)} over {transport}") for size in doubled),
               default=(0, ""))


def validated_curve(weft, rounds, seconds, tries, sizes, transport, smoke):
    """The curve. If a step is too large, it is measured again with twice the rounds, and that
    result counts."""
    found = curve(weft, rounds, seconds, tries, sizes, transport)
    if smoke or found[0] <= CURVE_STEP_MAX:
        return found
    print(f"{found[0]:.2f} at {found[1]}: measured again")
    return curve(weft, 2 * rounds, seconds, tries, sizes, transport)


def cpu_list(text):
    """The cpus of a list in the kernel's format: 0-3,8."""
    ranges = [part.split("-") for part in text.strip().split(",") if part]
    return {cpu for ends in ranges for cpu in range(int(ends[0]), int(ends[-1]) + 1)}


def last_cache(cpu):
    """The cpus that share the last cache of `cpu`, as far as the kernel reports them."""
    shared = {cpu}
    for index in range(8):
        try:
            with open(f"/sys/devices/system/cpu/cpu{cpu}/cache/index{index}/shared_cpu_list") as of:
                shared = max(shared, cpu_list(of.read()), key=len)
        except OSError:
            break
    return shared


def cpu_pairs():
    """The first allowed cpu paired with one of the same and one of another cache, both ways."""
    first, *others = sorted(os.sched_getaffinity(0))
    near = [cpu for cpu in others if cpu in last_cache(first)][:1]
    far = [cpu for cpu in others if cpu not in last_cache(first)][:1]
    return [pair for other in near + far for pair in ((first, other), (other, first))]


def caches(weft, rounds, seconds):
    """Measures calls over sm by size, with cpus that share a cache and with cpus that do not, and
    compares them with the floor of the same copies by plain stores.

    The kernel's topology is not sufficient, because a virtual machine moves its cpus. Each run is
    classified by its own floor, a round trip of one cache line. Returns the goals that were missed.
    """
    found = {}
    for _ in range(rounds):
        runs = [(pair, size) for pair in cpu_pairs() for size in CACHES_SIZES]
        for (client, server), size in random.sample(runs, len(runs)):
            what = f"rpc --transport sm --size {size} --spin --cpus {client},{server}"
            result, copied = run(weft, what, seconds), run(weft, what + " --copied-floor", seconds)
            if not (is_steady(result) and is_steady(copied) and result["p50_ns"]):
                continue
            kind = "far" if result["floor_ns"] > FAR_FLOOR_NS else "near"
            found.setdefault((kind, size), []).append(
                (result["floor_ns"], result["p50_ns"], copied["p50_ns"] / copied["floor_ns"]))
    print(f"{'caches':8} {'size':>10} {'floor':>10} {'p50':>10} {'least':>10} {'over copies':>12} "
          f"{'runs':>5}")
    missed = []
    for (kind, size), of in sorted(found.items()):
        floors, calls, overs = zip(*of)
        over = statistics.median(overs)
        if size == CACHES_JUDGED and over > 1:
            missed.append(f"{human_bytes(size)} between {kind} caches")
        print(f"{kind:8} {human_bytes(size):>10} {human_ns(statistics.median(floors)):>10} "
              f"{human_ns(statistics.median(calls)):>10} {human_ns(min(calls)):>10} {over:>12.2f} "
              f"{len(of):>5}")
    kinds = " and ".join(sorted({kind for kind, _ in found})) or "no"
    pairs = ", ".join(f"{a} and {b}" for a, b in cpu_pairs()[::2]) or "(one only)"
    slower = ", ".join(missed) or "none"
    print(f"bench: floors of {kinds} caches were measured, both ways between cpus {pairs}; "
          f"slower than plain copies: {slower}")
    return missed if found else ["no run counts"]


def congestion_control():
    """The name: bbr paces loopback, too: a megabyte over ofi+tcp or a raw stream may take twice as long."""
    try:
        with open("/proc/sys/net/ipv4/tcp_congestion_control") as setting:
            return setting.read().strip()
    except OSError:
        return "unknown"


def main():
    here = os.path.dirname(os.path.abspath(__file__))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", default=os.path.join(here, "../build/release/bin/weft"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.3, help="duration of each run")
    parser.add_argument("--caches", action="store_true",
                        help="measure only calls over sm, by size, between near and far caches")
    parser.add_argument("--smoke", action="store_true",
                        help="run every row once for 0.05 s, without checking the figures")
    options = parser.parse_args()
    if not os.path.exists(options.weft):
        print(f"bench: {options.weft} is missing; `make build` builds it")
        return 1
    rounds = 1 if options.smoke else options.rounds
    seconds = 0.05 if options.smoke else options.seconds
    sizes = [2048, 4096, 16384] if options.smoke else list(SWEEP_SIZES)
    if options.caches:
        try:
            return 1 if caches(options.weft, rounds, min(seconds, 0.1)) else 0
        except Failed as failure:
            print(f"bench: FAILED: {failure}")
            return 1
    print(f"tcp congestion control of this machine: {congestion_control()}\n")
    try:
        tries = 1 if options.smoke else 3
        rows, quiet, total = table(options.weft, rounds, seconds, tries)
        missed = 0 if options.smoke else validate(rows, transports(options.weft))
        step, at = sweep(options.weft, rounds, 0.05, tries, sizes)
        curve_sizes = CURVE_SIZES[:2] if options.smoke else CURVE_SIZES
        growths = [validated_curve(options.weft, rounds, min(seconds, 0.2), tries, curve_sizes,
                                transport, options.smoke)
                   for transport in ("sm", "tcp", "ofi+tcp")
                   if transport in transports(options.weft)]
    except Failed as failure:
        print(f"bench: FAILED: {failure}")
        return 1
    smooth = step <= SWEEP_STEP_MAX
    growth, grown = max(growths)
    if options.smoke:
        print(f"bench: every metric runs ({total}); figures of a smoke run mean nothing")
        return 0
    goals = f"{missed} goals MISSED" if missed else "every goal is reached"
    print(f"bench: {quiet} of {total} runs on a quiet machine; {goals}; the curve of sizes is "
          f"{'smooth' if smooth else 'NOT smooth'}, largest step {step:.2f} at {at} B; over the "
          f"same copies a doubling costs at most {growth:.2f} times more, at {grown}"
          f"{'' if growth <= CURVE_STEP_MAX else ': a CLIFF'}")
    return 0 if smooth and growth <= CURVE_STEP_MAX and not missed else 1


if __name__ == "__main__":
    sys.exit(main())
