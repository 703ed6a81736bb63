#!/usr/bin/env python3
"""Counts the cost of one call over sm and fails when it exceeds the limits.

The program steps client and server in one thread; the difference of two run lengths is the calls'
alone. Instructions by callgrind, system calls by strace, allocations by the program itself.

The program's clock advances by the turn, so that a loaded machine adds no timed work. Reads of
the kernel's clock are left out: they happen once a millisecond, which is thousands of calls, but only
some under callgrind. Of several runs of one length the least is the calls' own.
"""

import json
import re
import subprocess
import sys
import tempfile

SHORT, LONG = 1000, 6000
RUNS = 3
AWAY_MAX = 20


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return done


# Functions that take a lock; their calls are no part of a steady call.
LOCKS = re.compile(r" *([\d,]+) .*(pthread_mutex_(?:try)?lock|pthread_rwlock_\w*lock|pthread_spin_lock|sem_\w*wait)\b")
CLOCK = re.compile(r" *([\d,]+) .*SteadyClock::read_kernel\(\)")


def count_once(program, calls, how):
    """Instructions, and those of functions that take locks."""
    with tempfile.NamedTemporaryFile() as out:
        done = run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={out.name}", "--collect-atstart=no",
                    "--toggle-collect=*run_calls*", program, str(calls), *how])
        collected = int(re.search(r"Collected : (\d+)", done.stderr).group(1))
        listed = run(["callgrind_annotate", "--inclusive=yes", "--threshold=100", "--auto=no", out.name])
        return collected - most(CLOCK, listed.stdout), most(LOCKS, listed.stdout)


def most(pattern, listed):
    found = [pattern.match(line) for line in listed.splitlines()]
    return max((int(match.group(1).replace(",", "")) for match in found if match), default=0)


def per_call(program, *how):
    """Of one call: instructions, and those in locks. `how`: contexts, "away"."""
    short, long = ([count_once(program, calls, how) for _ in range(RUNS)] for calls in (SHORT, LONG))
    calls = (LONG - SHORT) * int(how[0])
    return tuple((min(counts[i] for counts in long) - min(counts[i] for counts in short)) / calls for i in (0, 1))


def system_calls(program, calls):
    with tempfile.NamedTemporaryFile("r") as out:
        run(["strace", "-f", "-c", "-o", out.name, program, str(calls)])
        total = [line.split() for line in out if line.rstrip().endswith("total")]
    # "100.00 seconds [usecs/call] calls [errors] total": the calls are the first whole number
    # after the times.
    numbers = [word for word in total[0] if word.isdigit()]
    return int(numbers[1] if len(numbers) > 2 else numbers[0])


def main():
    program, instructions_max = sys.argv[1], int(sys.argv[2])
    one, one_locked = per_call(program, "1")
    two, two_locked = per_call(program, "2")
    # One of the two callers is away from its channel's context.
    mixed, away_locked = per_call(program, "2", "away")
    away = 2 * (mixed - two)
    allocations = sum(json.loads(run([program, str(LONG), n]).stdout)["allocations"] for n in "12")
    # The periodic check of the control sockets, every few milliseconds, is not a cost per call: a
    # run ten times as long may make a few more of these system calls, but the number may not grow
    # with the calls.
    calls_short, calls_long = system_calls(program, SHORT), system_calls(program, LONG * 10)
    grown = (calls_long - calls_short) / (LONG * 10 - SHORT)
    print(f"per call over sm, one in flight, client and server together: "
          f"{one:.0f} instructions, {two:.0f} with two contexts, {away:.0f} more through a channel of another context, {allocations} allocations, "
          f"{grown:.5f} system calls, {one_locked + two_locked + away_locked:.3f} instructions in locks")
    failed = False
    if one > instructions_max:
        print(f"FAILED: more than {instructions_max} instructions")
        failed = True
    if two > one + 2:
        print("FAILED: a call costs more with two contexts")
        failed = True
    if away > AWAY_MAX:
        print(f"FAILED: a call through a channel of another context costs more than {AWAY_MAX} more")
        failed = True
    if one_locked + two_locked + away_locked > 0.01:
        print("FAILED: the steady state takes locks")
        failed = True
    if allocations != 0:
        print("FAILED: the steady state allocates")
        failed = True
    if grown >= 0.01:
        print("FAILED: the steady state makes system calls")
        failed = True
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
