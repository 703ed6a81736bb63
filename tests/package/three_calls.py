#!/usr/bin/env python3
"""examples/02_three_calls: its length, and its output over each transport in groups of three.

    three_calls.py SERVER CLIENT [SOURCES]

Echo, 64 MiB read into the caller's memory and a setting on every member, each with a deadline and
every error checked, take 81 lines of C++ (neither blank nor comment) or fewer.
"""
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time

LINES_MAX = 81
MEMBERS = 3
UNAVAILABLE, TAKEN = 14, 6  # Exit statuses.
EXPECTED = ("echo: hello\n"
            "read: byte 8192 is 3\n"  # The caller's byte 8192 is 12288 of the store: page 3.
            + "".join(f"set: rank {rank}: OK\n" for rank in range(MEMBERS)))


def lines_of_code(path):
    return sum(not re.fullmatch(r"\s*(//.*)?", line)
               for line in path.read_text(encoding="utf-8").splitlines())


def free_ports(count):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def uris_over(transport, place):
    if transport == "sm":
        return [f"sm://three-calls-{rank}" for rank in range(MEMBERS)]
    if transport == "unix":
        return [f"unix://{place}/{rank}" for rank in range(MEMBERS)]
    return [f"tcp://127.0.0.1:{port}" for port in free_ports(MEMBERS)]


def run_client(client, group, servers):
    """Repeats until the last server listens: refusals before are no failures."""
    end = time.monotonic() + 30
    while True:
        done = subprocess.run([client, group], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True, timeout=60, check=False)
        died = any(server.poll() is not None for server in servers)
        if done.returncode != UNAVAILABLE or died or time.monotonic() > end:
            return done
        time.sleep(0.05)


def check(transport, server, client, place):
    group = os.path.join(place, "group.json")
    members = [{"rank": rank, "uris": [uri]}
               for rank, uri in enumerate(uris_over(transport, place))]
    with open(group, "w", encoding="utf-8") as file:
        json.dump({"name": "three-calls", "epoch": 1, "members": members}, file)
    servers = [subprocess.Popen([server, group, str(rank)]) for rank in range(MEMBERS)]
    try:
        done = run_client(client, group, servers)
    finally:
        for one in servers:
            one.send_signal(signal.SIGTERM)
        ends = [one.wait(20) for one in servers]
    if done.returncode or done.stdout != EXPECTED or any(ends):
        return f"exit status {done.returncode}, {ends}\n{done.stdout}{done.stderr}", TAKEN in ends
    return "", False


def check_over(transport, server, client):
    """A free port may be taken a moment later: then tries again with other ports."""
    for _ in range(3):
        with tempfile.TemporaryDirectory(prefix="weft-three-") as place:
            os.environ["XDG_RUNTIME_DIR"] = place  # The directory of sm's names: no other process
                                                   # uses this one.
            why, taken = check(transport, server, client, place)
        if not taken:
            break
    return why


def main():
    server, client = map(os.path.abspath, sys.argv[1:3])
    failed = False
    if len(sys.argv) > 3:
        lines = sum(map(lines_of_code, pathlib.Path(sys.argv[3]).glob("*.cc")))
        print(f"three_calls: {lines} lines of C++, at most {LINES_MAX}")
        failed = lines > LINES_MAX or lines == 0
    for transport in ("sm", "tcp", "unix"):
        why = check_over(transport, server, client)
        print(f"three_calls: {transport}: {why or 'all three calls to three members'}")
        failed = failed or bool(why)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
