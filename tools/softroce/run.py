#!/usr/bin/env python3
"""Tests weft on real verbs: Soft-RoCE in a small virtual machine (docs/softroce.md).

    tools/softroce/run.py                 boots one machine, then two connected ones; runs every
                                          step and prints the results
    tools/softroce/run.py --test NAME     one step; --list names them
    tools/softroce/run.py --smoke         the quick steps, which continuous integration runs
    tools/softroce/run.py --shell         a prompt in the machine; `exit` ends it

Needs the release build (`make build`). Logs: build/softroce/out.
"""
import argparse
import contextlib
import os
import pathlib
import shlex
import shutil
import sys
import tempfile
import threading
import time
import typing

import machine

HOST = "10.77.0.1"
BOOT_SECONDS = 120
WHOLE_SECONDS = 900  # The limit for all steps, on any machine.
# Of the second machine, if there are two: its RDMA device, and its address for commands (control.py).
FAR_HOST, FAR_CONTROL = "10.77.0.2", "10.78.0.2"
NEAR_CONTROL = "10.78.0.1"
CASES = "tools/softroce/cases.sh"


class Step(typing.NamedTuple):
    name: str
    machines: int  # One, or two connected ones.
    smoke: bool    # A part of --smoke.
    seconds: int   # Its time limit.
    command: str


STEPS = (
    Step("device", 1, True, 30, "ibv_devinfo | grep -q PORT_ACTIVE"),
    # Without the case in which rxe itself may spin (docs/softroce.md).
    Step("conformance", 1, True, 600,
         f"{CASES} weft_conformance '~\"*room are reported while others flood*\" \"*- Verbs\"'"),
    # libfabric takes seconds to start here, so only the cases that fork get a process each.
    Step("ofi", 1, False, 300,
         "failed=0; build/release/bin/weft_conformance -d yes '~[kill]*- OfiVerbs' || failed=1; "
         f"{CASES} weft_conformance '*- OfiVerbs[kill]' || failed=1; "
         "build/release/bin/weft_system -d yes 'ofi+verbs*' || failed=1; exit $failed"),
    Step("ipv6", 1, False, 60,
         "TEST_RDMA_HOST=[fd77::1] build/release/bin/weft_conformance -d yes "
         "'both sides of a connection get address and incarnation of the peer - Verbs,"
         "put and get move the right bytes at every size and offset - Verbs'"),
    Step("calls", 1, False, 300,
         f"{CASES} weft_integration '*over verbs*,*over ofi+verbs*,[kill]~[group]'"),
    Step("faults", 1, False, 400, f"{CASES} weft_integration '[verbs]'"),
    Step("leaks", 1, False, 300, f"{CASES} weft_leaks '*over verbs*'"),
    Step("speed", 1, False, 600, f"tools/softroce/speed.py {HOST}"),
    Step("suite", 1, False, 300, "tools/softroce/suite.py"),
    Step("demo", 1, True, 300, f"services/storage/demo.py --rdma {HOST}"),
    Step("joined", 2, False, 120, f"tools/softroce/joined.sh {FAR_HOST} {FAR_CONTROL}"),
)
# Only by name: not all cases pass yet, and they take long (docs/softroce.md).
STEPS_BY_NAME = (
    Step("network", 2, False, 900, f"{CASES} weft_integration '[far]~[vanish]'"),
    # Must be the last step: the other machine is down afterwards.
    Step("vanish", 2, False, 120, f"{CASES} weft_integration '[vanish]'"),
)


def script(steps):
    """The script for the guest: each step has its own log and prints a line at its end; later steps run
    also after a failure."""
    lines = ["failed=0", f"export TEST_RDMA_HOST={HOST}"]
    if steps[0].machines == 2:
        lines += [f"export TEST_RDMA_FAR={FAR_HOST} TEST_FAR_CONTROL={FAR_CONTROL} "
                  f"TEST_NEAR_CONTROL={NEAR_CONTROL}",
                  # Waits until the other machine has booted.
                  f"until tools/softroce/control.py --tell {FAR_CONTROL} true >/dev/null; "
                  "do sleep 0.2; done"]
    for step in steps:
        log = f"/out/{step.name}.log"
        lines += ["begin=$(date +%s)",
                  f"timeout {step.seconds} bash -c {shlex.quote(step.command)} >{log} 2>&1",
                  "status=$?",
                  f"[ $status != 124 ] || echo 'softroce: not done within {step.seconds} s' >>{log}",
                  f'echo "step {step.name} $status $(($(date +%s) - begin))"',
                  "[ $status = 0 ] || failed=1"]
    return "\n".join(lines + ["dmesg >/out/dmesg.log", "exit $failed"]) + "\n"


@contextlib.contextmanager
def machines(steps, out):
    """The machine that runs the steps; a second one, if they need it, serves its commands."""
    image = machine.prepare()
    if steps[0].machines == 1:
        guests = [machine.Guest(image, script(steps), out)]
    else:
        folder = tempfile.mkdtemp(prefix="softroce-")  # The name of a socket has 107 bytes at most.
        jobs = (script(steps), "sleep infinity\n")
        guests = [machine.Guest(image, job, out / f"machine-{number}", number,
                                machine.network_of(number, folder))
                  for number, job in enumerate(jobs, 1)]
    seconds = BOOT_SECONDS + sum(step.seconds for step in steps)
    # If the guest's kernel hangs, the limits of the steps have no effect.
    dog = threading.Timer(seconds, guests[0].end)
    dog.start()
    try:
        yield guests[0]
    finally:
        dog.cancel()
        for guest in guests:
            guest.end()
        if len(guests) == 2:
            shutil.rmtree(folder)


def boot(steps, out):
    """Runs the steps and prints each result; returns the names of those that ran, and that failed."""
    failures, done = [], []
    what = "a machine starts" if steps[0].machines == 1 else "two connected machines start"
    print(f"softroce: {what}, {len(steps)} steps; logs in {out}", flush=True)
    with machines(steps, out) as guest:
        for line in guest.lines():
            words = line.split()
            if words[:1] != ["step"]:
                print(f"softroce: {line}", flush=True)
                continue
            _, name, status, seconds = words
            print(f"softroce: {name:<14} {'held' if status == '0' else 'FAILED':<6} {seconds:>4} s",
                  flush=True)
            done.append(name)
            if status != "0":
                failures.append(name)
                log = (guest.out / f"{name}.log").read_text(errors="replace").splitlines()
                print("\n".join(log[-40:]), flush=True)
        guest.status()
    return done, failures


def run(steps, out):
    begin = time.monotonic()
    failures, done = [], []
    for count in (1, 2):
        those = [step for step in steps if step.machines == count]
        if those:
            ran, failed = boot(those, out)
            done += ran
            failures += failed
    missing = [step.name for step in steps if step.name not in done]
    seconds = time.monotonic() - begin
    took = f"in {seconds:.0f} s"
    if failures or missing:
        words = [f"FAILED: {' '.join(failures)}"] if failures else []
        words += [f"never ran: {' '.join(missing)}"] if missing else []
        print(f"softroce: {'; '.join(words)}, {took}")
        return 1
    if seconds > WHOLE_SECONDS:
        print(f"softroce: everything held, but {took}, the limit is {WHOLE_SECONDS}")
        return 1
    print(f"softroce: everything held on rxe: {', '.join(done)}, {took}")
    return 0


def shell():
    if not sys.stdin.isatty():
        print("softroce: a prompt needs a terminal")
        return 64
    guest = machine.Guest(machine.prepare(), "exec setsid -c bash -i </dev/hvc0 >/dev/hvc0 2>&1",
                          machine.PLACE / "shell", interactive=True)
    try:
        os.system("stty raw -echo")
        return guest.status()
    finally:
        os.system("stty sane")
        guest.end()


def main():
    parser = argparse.ArgumentParser(description="Tests weft on real verbs in a virtual machine.")
    parser.add_argument("--test", metavar="NAME", help="run one step")
    parser.add_argument("--list", action="store_true", help="print the names of the steps")
    parser.add_argument("--smoke", action="store_true", help="run only the quick steps")
    parser.add_argument("--shell", action="store_true", help="open a prompt in the machine")
    given = parser.parse_args()
    if given.list:
        print("\n".join(step.name for step in STEPS + STEPS_BY_NAME))
        return 0
    steps = [step for step in (STEPS + STEPS_BY_NAME if given.test else STEPS)
             if (not given.test or step.name == given.test) and (not given.smoke or step.smoke)]
    if not steps:
        print(f"softroce: unknown step {given.test}; the steps are: "
              f"{', '.join(step.name for step in STEPS + STEPS_BY_NAME)}")
        return 64
    if not (machine.REPOSITORY / "build/release/bin/weft_conformance").exists():
        print("softroce: build/release/bin/weft_conformance is missing: `make softroce` builds it")
        return 1
    try:
        if given.shell:
            return shell()
        return run(steps, pathlib.Path(machine.PLACE / "out"))
    except machine.Failure as failure:
        print(f"softroce: {failure}")
        return 1
    except KeyboardInterrupt:
        print("softroce: interrupted")
        return 130


if __name__ == "__main__":
    sys.exit(main())
