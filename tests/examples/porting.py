#!/usr/bin/env python3
"""porting.py BIN: the programs that the porting guides quote, over each transport.

A server prints its address; each of its clients runs against it and must print the text
written here. Then the server gets SIGTERM, and must exit with 0.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

NOT_FOUND = "NOT_FOUND: {} (effect none, stage executing, peer "
BLOBS = {
    "blobs_client": ["append: 4 bytes", "append: 8 bytes",
                     "stat: " + NOT_FOUND.format("no blob nothing"), "large: the same",
                     "stat: 8 bytes"],
    "blobs_async": ["fill: OK", "sum: 8 bytes", "watch: 1 bytes", "watch: 2 bytes",
                    "watch: 3 bytes", "cancel: CANCELLED"],
}
CHECKPOINTS = {
    "checkpoint_loop": ["saved: 3145728 bytes", "loaded: the same"],
    "checkpoint_blocking": ["saved: OK", "loaded: OK, the same",
                            "missing: " + NOT_FOUND.format("no such checkpoint")],
}


def complaints(folder, clients, command):
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            address = server.stdout.readline().strip()
            for client, expected in clients.items():
                done = subprocess.run([folder / client, address], stdout=subprocess.PIPE, text=True,
                                      timeout=60, check=False)
                said = done.stdout.splitlines()
                if done.returncode or [line[:len(start)] for line, start in zip(said, expected)] \
                        != expected or len(said) != len(expected):
                    yield f"{client} {address}: status {done.returncode}, printed\n{done.stdout}"
        finally:
            server.terminate()
    if server.returncode:
        yield f"{command[0].name}: status {server.returncode}"


def main():
    folder = pathlib.Path(sys.argv[1]).resolve()
    bad = []
    for transport in ("sm", "tcp", "unix"):
        with tempfile.TemporaryDirectory(prefix="weft-porting-") as place:
            os.environ["XDG_RUNTIME_DIR"] = place  # The directory of sm's names: no other process
                                                   # uses this one.
            at = {"sm": "sm://porting", "tcp": "tcp://127.0.0.1:0",
                  "unix": f"unix://{place}/porting"}[transport]
            journal = pathlib.Path(place) / "journal"
            bad += complaints(folder, BLOBS, [folder / "blobs_server", at, journal])
            bad += complaints(folder, CHECKPOINTS, [folder / "checkpoint_server", at])
            if len(journal.read_text(encoding="utf-8").splitlines()) != 2 + 100 + 3:
                bad.append(f"the journal over {transport} differs from the appended records")
    print("\n".join(bad) or "porting: every program over sm, tcp and unix")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
