#!/usr/bin/env python3
"""cores.py SERVER LOAD: the sharded service of examples/06_cores with 1 and with 3 contexts, over sm and tcp;
its source has at most 120 lines."""

import os
import pathlib
import subprocess
import sys
import tempfile

SERVER, LOAD = sys.argv[1:]
SOURCE = pathlib.Path(__file__).parents[2] / "examples/06_cores/server.cc"


def run(uri, contexts):
    environment = {**os.environ, "WEFT_CONTEXTS": str(contexts)}
    with subprocess.Popen([SERVER, uri], env=environment, stdout=subprocess.PIPE, text=True) as server:
        line = server.stdout.readline()
        address = line.split()[2].rstrip(",")
        load = subprocess.run([LOAD, address, "200"], capture_output=True, text=True, timeout=100)
        server.terminate()
    said = load.stdout + load.stderr
    if f", {contexts} contexts" not in line or server.returncode != 0:
        sys.exit(f"server: {line}, exit {server.returncode}")
    if load.returncode != 0 or said != f"3200 values on {contexts} contexts, 0 wrong\n":
        sys.exit(f"load over {uri}, {contexts} contexts: exit {load.returncode}, {said}")


def main():
    lines = len(SOURCE.read_text().splitlines())
    if lines > 120:
        sys.exit(f"{SOURCE} has {lines} lines")
    with tempfile.TemporaryDirectory() as names:
        os.environ["XDG_RUNTIME_DIR"] = names
        for uri in "sm://cores", "tcp://127.0.0.1:0":
            for contexts in 1, 3:
                run(uri, contexts)


if __name__ == "__main__":
    main()
