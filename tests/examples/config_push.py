#!/usr/bin/env python3
"""config_push.py SERVER PUSH: the example of configurations, with servers that are killed and stopped."""
import os
import signal
import sys

from group_servers import check, run, served

SERVER, PUSH = sys.argv[1:3]


def push(servers, version, text="x"):
    return run(PUSH, servers.group, version, text)


def all_get_all():
    """A quorum decides when the push returns, not which members get a version."""
    pushes = 30
    with served(3, lambda group, rank: [SERVER, group, rank]) as servers:
        for version in range(1, pushes + 1):
            status, said, _ = push(servers, version)
            check(status == 0, f"push {version} to three exited with {status}: {said}")
        for rank, process in servers.processes.items():
            process.terminate()
            taken = process.communicate(timeout=60)[0].splitlines()
            check(len(taken) == pushes, f"rank {rank} got {len(taken)} of {pushes} versions")


def main():
    all_get_all()
    with served(5, lambda group, rank: [SERVER, group, rank]) as servers:
        status, said, _ = push(servers, 1)
        check(status == 0, f"a push to five exited with {status}: {said}")
        servers.kill(3)
        status, said, _ = push(servers, 2)
        check(status == 0, f"a push to four of five exited with {status}: {said}")
        check("of 5 members" in said, said)
        os.kill(servers.processes[1].pid, signal.SIGSTOP)
        status, said, took = push(servers, 3)
        check(status == 0, f"a push beside a stopped server exited with {status}: {said}")
        # At its end the client waits up to drain_timeout (5 s) for pending sends.
        check(took < 8, f"a push waited {took:.1f} s for a stopped server")
        status, said, _ = push(servers, 2)
        check(status == 9 and "version 3 is here" in said, f"an old version: {status}: {said}")
        os.kill(servers.processes[1].pid, signal.SIGCONT)
        servers.kill(0)
        servers.kill(4)
        status, said, _ = push(servers, 4)
        check(status == 14 and "2 of 5" in said, f"a push to two of five: {status}: {said}")
        check(said.count("UNAVAILABLE") >= 3, said)
        for rank in 0, 3, 4:
            servers.start(rank)
        status, said, _ = push(servers, 5)
        check(status == 0, f"a push to five again exited with {status}: {said}")
    print("config_push: all checks passed")


main()
