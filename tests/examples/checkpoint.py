#!/usr/bin/env python3
"""checkpoint.py SERVER CHECKPOINT: the example of checkpoints; one server dies."""
import re
import sys

from group_servers import check, run, served

SERVER, CHECKPOINT = sys.argv[1:3]
MEMBERS = 6


def main():
    def command(group, rank):
        return [SERVER, group, rank, group.parent / f"shard-{rank}"]

    def bytes_in(servers):
        return [(servers.directory / f"shard-{rank}").stat().st_size for rank in range(MEMBERS)]

    with served(MEMBERS, command) as servers:
        status, said, _ = run(CHECKPOINT, servers.group, 1000)
        check(status == 0, f"a checkpoint exited with {status}: {said}")
        check(f"{1000 * MEMBERS} bytes durable at {MEMBERS} of {MEMBERS}" in said, said)
        slowest = re.search(r"rank (\d+) took ([0-9.e+-]+) ms", said)
        check(slowest and int(slowest[1]) < MEMBERS and float(slowest[2]) > 0, said)
        check(bytes_in(servers) == [1000] * MEMBERS, f"files of {bytes_in(servers)} bytes")
        status, said, _ = run(CHECKPOINT, servers.group)
        check(status == 0 and said.startswith("0 bytes durable"), f"a checkpoint without data: {said}")
        servers.kill(2)
        status, said, _ = run(CHECKPOINT, servers.group, 50)
        check(status == 14, f"a checkpoint without rank 2 exited with {status}: {said}")
        check(f"{50 * (MEMBERS - 1)} bytes durable at {MEMBERS - 1} of {MEMBERS}" in said, said)
        check("rank 2: UNAVAILABLE" in said, said)
        servers.start(2)
        status, said, _ = run(CHECKPOINT, servers.group, 7)
        check(status == 0, f"a checkpoint with rank 2 again exited with {status}: {said}")
        check(bytes_in(servers) == [1057, 1057, 1007, 1057, 1057, 1057],
              f"files of {bytes_in(servers)} bytes")
    print("checkpoint: all checks passed")


main()
