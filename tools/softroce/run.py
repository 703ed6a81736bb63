#!/usr/bin/env python3
"""Tests weft on real verbs: Soft-RoCE in a small virtual machine (docs/softroce.md).

    tools/softroce/run.py                 boots, runs every step, says what held
    tools/softroce/run.py --test NAME     one step; --list names them
    tools/softroce/run.py --smoke         what is quick: a part of every continuous integration
    tools/softroce/run.py --shell         a prompt in the machine; `exit` ends it

Needs the release build (`make build`). Logs: build/softroce/out.
"""
import argparse
import os
import pathlib
import shlex
import sys
import time

import machine

HOST = "10.77.0.1"
# A guest that says nothing for so long is taken for dead.
STEP_SECONDS = 600
# name, whether it is a part of --smoke, seconds that it may take, what it runs.
STEPS = (
    ("device", True, 30, "ibv_devinfo | grep -q PORT_ACTIVE"),
    ("conformance", True, 300, "tools/softroce/cases.sh weft_conformance '*- Verbs'"),
    # libfabric takes seconds to start here, so only the cases that fork get a process each.
    ("ofi", False, 300, "failed=0; build/release/bin/weft_conformance -d yes '~[kill]*- OfiVerbs' || failed=1; "
                        "tools/softroce/cases.sh weft_conformance '*- OfiVerbs[kill]' || failed=1; "
                        "build/release/bin/weft_unit -d yes 'ofi+verbs*' || failed=1; exit $failed"),
    ("calls", False, 300, "tools/softroce/cases.sh weft_integration '*over verbs*,*over ofi+verbs*,[kill]'"),
    ("speed", False, 600, f"tools/softroce/speed.py {HOST}"),
    ("demo", True, 300, f"examples/storage/demo.py --rdma {HOST}"),
)


def script(steps):
    """What runs in the guest: each step with its own log, a line for its end, the first failure ends
    nothing."""
    lines = ["failed=0", f"export TEST_RDMA_HOST={HOST}"]
    for name, _, seconds, command in steps:
        lines += [f"begin=$(date +%s)",
                  f"timeout {seconds} bash -c {shlex.quote(command)} >/out/{name}.log 2>&1",
                  "status=$?",
                  f'echo "step {name} $status $(($(date +%s) - begin))"',
                  "[ $status = 0 ] || failed=1"]
    return "\n".join(lines + ["dmesg >/out/dmesg.log", "exit $failed"]) + "\n"


def run(steps, out):
    begin = time.monotonic()
    failures, done = [], []
    guest = machine.Guest(machine.prepare(), script(steps), out)
    print(f"softroce: a machine starts, {len(steps)} steps; logs in {out}", flush=True)
    try:
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
                log = (out / f"{name}.log").read_text(errors="replace").splitlines()
                print("\n".join(log[-40:]), flush=True)
        guest.status()
    finally:
        guest.end()
    missing = [name for name, *_ in steps if name not in done]
    took = f"in {time.monotonic() - begin:.0f} s"
    if failures or missing:
        words = [f"FAILED: {' '.join(failures)}"] if failures else []
        words += [f"never ran: {' '.join(missing)}"] if missing else []
        print(f"softroce: {'; '.join(words)}, {took}")
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
    parser.add_argument("--test", metavar="NAME", help="one step")
    parser.add_argument("--list", action="store_true", help="the names of the steps")
    parser.add_argument("--smoke", action="store_true", help="the quick steps")
    parser.add_argument("--shell", action="store_true", help="a prompt in the machine")
    given = parser.parse_args()
    if given.list:
        print("\n".join(name for name, *_ in STEPS))
        return 0
    steps = [step for step in STEPS if (not given.test or step[0] == given.test) and
             (not given.smoke or step[1])]
    if not steps:
        print(f"softroce: no step is called {given.test}; there are: "
              f"{', '.join(name for name, *_ in STEPS)}")
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
