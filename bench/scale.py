#!/usr/bin/env python3
"""How the rate of one server grows with its contexts: N contexts and N clients, each on a cpu of its own.

    bench/scale.py [--weft build/release/bin/weft] [--seconds 3] [--rounds 5] [--json]

N is 1, 2, 4 and so on, up to half of the allowed cpus. Calls of 64 bytes and gets of 4 KiB, over sm and tcp.
The rounds are interleaved; a figure is the median of the sums over the clients, and its share of N times the
figure of one. The connections of each context, from the state of the server in the middle of a round, show whether
the clients were spread evenly; of several rounds those of the least even one.
"""
import argparse
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time

METRICS = (("rpc", "64"), ("get", "4KiB"))
TRANSPORTS = {"sm": "sm://scale", "tcp": "tcp://127.0.0.1:0"}


def counts(cpus):
    n = 1
    while 2 * n <= cpus:
        yield n
        n *= 2


def connections_of(state, n):
    """The connections of each context by the state of a server; empty: the text does not have them all."""
    found = dict(re.findall(rf"^  context (\d+) of {n}: .* (\d+) connections", state, re.MULTILINE))
    return [int(found[str(k)]) for k in range(n)] if len(found) == n else []


def measure(weft, cpus, n, metric, size, uri, seconds):
    """Operations per second of `n` clients of a server with `n` contexts, and the connections of each."""
    server_cpus, client_cpus = cpus[:n], cpus[n:2 * n]
    environment = {**os.environ, "WEFT_CPUS": ",".join(map(str, server_cpus)), "WEFT_STATE_SIGNAL": "USR1",
                   "WEFT_LOG": "warning"}
    log = tempfile.TemporaryFile("w+")
    server = subprocess.Popen([weft, "perf", "serve", "--listen", uri, "--contexts", str(n)],
                              stdout=subprocess.PIPE, stderr=log, text=True, env=environment)
    try:
        words = server.stdout.readline().split()
        if len(words) != 2 or words[0] != "listening":
            sys.exit("scale: the server does not start")
        clients = [subprocess.Popen([weft, "perf", metric, "--server", words[1], "--size", size, "--inflight", "16",
                                     "--seconds", str(seconds), "--cpus", f"{cpu},{server_cpus[i]}", "--json"],
                                    stdout=subprocess.PIPE, text=True)
                   for i, cpu in enumerate(client_cpus)]
        time.sleep(seconds / 2)
        server.send_signal(signal.SIGUSR1)
        outputs = [client.communicate()[0] for client in clients]
        if any(client.returncode != 0 for client in clients):
            sys.exit("scale: a client failed")
        log.seek(0)
        connections = [n] if n == 1 else connections_of(log.read(), n)
        return sum(json.loads(output)["rate_per_s"] for output in outputs), connections
    finally:
        server.terminate()
        server.wait()
        log.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--weft", default="build/release/bin/weft")
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        sys.exit("scale: this needs two cpus")
    rates, placements = {}, {}
    with tempfile.TemporaryDirectory() as names:
        os.environ["XDG_RUNTIME_DIR"] = names
        for _ in range(options.rounds):
            for transport, uri in TRANSPORTS.items():
                for metric, size in METRICS:
                    for n in counts(len(cpus)):
                        rate, connections = measure(options.weft, cpus, n, metric, size, uri, options.seconds)
                        rates.setdefault((transport, metric, size, n), []).append(rate)
                        placements.setdefault((transport, metric, size, n), []).append(connections)
    rows = []
    for (transport, metric, size, n), all_rates in rates.items():
        rate = statistics.median(all_rates)
        one = statistics.median(rates[transport, metric, size, 1])
        connections = max(placements[transport, metric, size, n], key=lambda each: max(each, default=0))
        rows.append({"transport": transport, "metric": metric, "size": size, "contexts": n, "rate_per_s": round(rate),
                     "share_of_linear": round(rate / (n * one), 3), "connections": connections})
    if options.json:
        print(json.dumps({"cpus": len(cpus), "rows": rows}))
        return
    for row in rows:
        print(f"{row['transport']:4} {row['metric']:4} {row['size']:>5}  {row['contexts']:3} contexts  "
              f"{row['rate_per_s']:>12,}/s  {row['share_of_linear']:.2f} of linear  "
              f"connections: {' '.join(map(str, row['connections'])) or 'not known'}")


if __name__ == "__main__":
    main()
