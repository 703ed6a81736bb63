#!/usr/bin/env python3
"""A broadcast of 64 bytes with acknowledgements among eight processes, beside MPI_Bcast and MPI_Gather of
Open MPI: one after the other, again and again, so that both see the same machine. Prints each median and
their ratio; exit status 1 when weft takes more than 1.5 times as long. Needs mpicc and mpirun
(Debian: openmpi-bin, libopenmpi-dev), and `make build`.

    bench/against_mpi.py [--pairs 15]
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

REPOSITORY = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 1.5
PROCESSES = 8  # The client of weft is one of them.
WEFT = [str(REPOSITORY / "build/release/bin/weft"), "perf", "bcast", "--ranks", str(PROCESSES - 1),
        "--size", "64", "--seconds", "1", "--json"]


def output_of(command):
    done = subprocess.run(command, text=True, capture_output=True, timeout=120)
    if done.returncode != 0:
        sys.exit(f"against_mpi: {' '.join(command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--pairs", type=int, default=15)
    pairs = parser.parse_args().pairs
    for tool in "mpicc", "mpirun":
        if not shutil.which(tool):
            sys.exit(f"against_mpi: {tool} is not installed")
    with tempfile.TemporaryDirectory() as directory:
        program = f"{directory}/mpi_bcast"
        output_of(["mpicc", "-O2", str(REPOSITORY / "bench/mpi_bcast.c"), "-o", program])
        # More processes than processors: Open MPI then has to let others run while it waits.
        mpi = ["mpirun", "--oversubscribe", "--mca", "mpi_yield_when_idle", "1",
               "-np", str(PROCESSES), program]
        if os.geteuid() == 0:
            mpi.insert(1, "--allow-run-as-root")
        ours, theirs = [], []
        for pair in range(pairs):
            theirs.append(float(output_of(mpi)) / 1000)
            ours.append(json.loads(output_of(WEFT))["p50_ns"] / 1000)
            print(f"{pair + 1:3} of {pairs}: weft {ours[-1]:7.1f} us, Open MPI {theirs[-1]:7.1f} us",
                  flush=True)
    ratio = statistics.median(a / b for a, b in zip(ours, theirs))
    print(f"weft: {' '.join(WEFT)}\nOpen MPI: {' '.join(mpi)}")
    print(f"against_mpi: weft {statistics.median(ours):.1f} us, Open MPI {statistics.median(theirs):.1f} us, "
          f"median of the ratios {ratio:.2f} (at most {LIMIT})")
    return 0 if ratio <= LIMIT else 1


if __name__ == "__main__":
    sys.exit(main())
