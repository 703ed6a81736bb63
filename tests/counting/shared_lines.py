#!/usr/bin/env python3
"""Finds the cache lines that one pair of contexts writes and another pair touches, in a trace of all
memory accesses of steady calls (valgrind's lackey). With none, pairs on different cpus do not slow each
other down. Counts the locks that ten times as many calls take, too.

  shared_lines.py PROGRAM MODE CALLS [--expect]     --expect: fails if no such line is found
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict

LINE = 64
SHOWN = 20


class Trace:
    def __init__(self, marks, own, base):
        self.base = base
        self.marks = {address: pair for pair, address in enumerate(marks)}
        self.none = len(marks) - 1
        self.own = own
        self.pair = self.none
        self.steady = False
        self.accesses = 0
        self.last = 0  # The address of the last instruction.
        self.touched = defaultdict(set)
        self.written = defaultdict(set)
        self.first = {}  # The first instruction that wrote a line, or touched it, by pair.

    def on_mark(self, pair):
        # Two marks of no pair in a row begin the steady calls.
        self.steady |= pair == self.none and self.pair == self.none and self.previous == self.none
        self.previous, self.pair = self.pair, pair

    previous = 0

    def on_access(self, kind, address, size):
        if kind != "L" and address in self.marks:
            return self.on_mark(self.marks[address])
        if not self.steady or self.pair == self.none:
            return None
        if any(begin <= address < end for begin, end in self.own):
            return None
        self.accesses += 1
        for line in range(address // LINE, (address + size - 1) // LINE + 1):
            self.touched[line].add(self.pair)
            self.first.setdefault((line, self.pair, "touched"), self.last)
            if kind != "L":
                self.written[line].add(self.pair)
                self.first.setdefault((line, self.pair, "written"), self.last)
        return None

    def shared(self):
        return sorted(line for line, writers in self.written.items() if len(writers | self.touched[line]) > 1)


def places(program, addresses):
    done = subprocess.run(["addr2line", "-Cfpse", program, *[f"{max(address, 0):x}" for address in addresses]],
                          capture_output=True, text=True, check=False)
    return done.stdout.splitlines() or ["?"] * len(addresses)


def main():
    program, mode, calls = sys.argv[1:4]
    native = subprocess.run([program, mode, str(10 * int(calls))], capture_output=True, text=True, check=True)
    locks = int(re.search(r"locks (\d+)", native.stdout).group(1))
    with tempfile.TemporaryFile("w+") as printed:
        with subprocess.Popen(["valgrind", "--tool=lackey", "--trace-mem=yes", "--basic-counts=no", program,
                               mode, calls], stdout=printed, stderr=subprocess.PIPE, text=True) as process:
            trace = None
            for text in process.stderr:
                kind = text[:2]
                if kind not in ("I ", " L", " S", " M"):
                    continue
                if trace is None:
                    printed.seek(0)
                    head = printed.read()
                    if head.count("mark") < 3:
                        continue
                    trace = Trace([int(address, 16) for address in re.findall(r"mark 0x(\w+)", head)],
                                  [tuple(int(end, 16) for end in ends) for ends in re.findall(r"own (\w+) (\w+)", head)],
                                  int(re.search(r"base (\w+)", head).group(1), 16))
                if kind == "I ":
                    if trace.steady:
                        trace.last = int(text[3:].split(",")[0], 16)
                    continue
                address, size = text[3:].split(",")
                trace.on_access(kind[1], int(address, 16), int(size))
        if process.returncode != 0 or trace is None or trace.accesses < 1000:
            sys.exit(f"{program} {mode} {calls}: exit {process.returncode}, no trace of steady calls")
    shared = trace.shared()
    print(f"{mode}: {trace.accesses} accesses in {calls} steady operations of each pair, "
          f"{len(trace.touched)} lines, {len(shared)} of them written by one pair and touched by another; "
          f"{locks} locks in {10 * int(calls)} operations")
    for line in shared[:SHOWN]:
        print(f"  {line * LINE:x}")
        uses = sorted(use for use in trace.first if use[0] == line)
        for use, place in zip(uses, places(program, [trace.first[use] - trace.base for use in uses])):
            print(f"    pair {use[1]}, {use[2]}: {place}")
    if locks != 0:
        sys.exit("FAILED: the steady state takes locks")
    if bool(shared) != ("--expect" in sys.argv):
        sys.exit("FAILED: " + ("the pairs share lines" if shared else "the planted line is not found"))


if __name__ == "__main__":
    main()
