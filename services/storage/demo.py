#!/usr/bin/env python3
"""The whole of weft at work: six storage servers on three transports, real files stored and
fetched back, a setting broadcast, one server killed in the middle of a transfer; a broadcast that heals
around it; the server taken out of the group, brought back and started again.

    services/storage/demo.py [--weft build/release/bin/weft] [--rdma HOST]

With --rdma the servers are reached over verbs://HOST, the address of an RDMA device, with a smaller
file, because such a device may be emulated.

Every step is checked; the first failed step ends the demo with its reason and status 1.
It needs no fixed port and no network, and leaves nothing behind.
"""
import argparse
import hashlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
MIB = 1 << 20
UNAVAILABLE = 14
START_SECONDS = 10
STEP_SECONDS = 60
# A deep tree for so few servers, so that some ranks have children.
TREE = ("--topology", "k-ary", "--fanout", "2")


class Failed(Exception):
    pass


def check(holds, reason):
    if not holds:
        raise Failed(reason)


def say(step, what, result=""):
    print(f"  {step:<9} {what:<46} {result}".rstrip(), flush=True)


def sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while piece := file.read(4 * MIB):
            digest.update(piece)
    return digest.hexdigest()


def sha256_below(directory):
    """Digests of all regular files below a directory, by relative path."""
    files = (path for path in directory.rglob("*") if path.is_file())
    return {str(path.relative_to(directory)): sha256(path) for path in files}


class Server:
    """One `weft serve`: a rank of the group, on shared memory and on the demo's other transports."""

    def __init__(self, demo, rank):
        self.rank = rank
        self.sm = f"sm://demo-{os.getpid()}-{rank}"
        self.root = demo.directory / f"server-{rank}"
        self.root.mkdir()
        self.log = demo.directory / f"server-{rank}.log"
        self.demo = demo
        self.process = None

    def start(self):
        command = [self.demo.weft, "serve", "--root", self.root, "--listen", self.sm,
                   *self.demo.listen, "--group", self.demo.group, "--rank", str(self.rank)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                                        stderr=open(self.log, "w"))
        lines = [self.process.stdout.readline().split() for _ in range(1 + len(self.demo.listen))]
        check(all(line[:2] == ["listening", "on"] for line in lines),
              f"server {self.rank} did not start: {self.log.read_text().strip()}")
        self.far = [line[2] for line in lines[1:]]

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        """Sends SIGTERM; returns the exit status."""
        self.process.terminate()
        return self.process.wait(timeout=STEP_SECONDS)

    def unfinished(self, name):
        return list(self.root.glob(f".{name}.*.weft-tmp"))


class Demo:
    def __init__(self, weft, directory, rdma):
        self.weft = weft
        self.directory = directory
        self.listen = [f"verbs://{rdma}:0"] if rdma else ["tcp://127.0.0.1:0",
                                                          "ofi+tcp://127.0.0.1:0"]
        self.large_mib = 16 if rdma else 256
        self.group = directory / "group.json"
        self.servers = []

    def run(self, *arguments):
        """Runs `weft`; returns its exit status, JSON and error text."""
        done = subprocess.run([self.weft, *map(str, arguments), "--json"], text=True,
                              capture_output=True, timeout=STEP_SECONDS)
        answer = json.loads(done.stdout) if done.stdout.strip() else {}
        return done.returncode, answer, done.stderr.strip()

    def must(self, *arguments):
        status, answer, error = self.run(*arguments)
        check(status == 0, f"weft {arguments[0]} exited with {status}: {error}")
        return answer

    # ---- the steps ------------------------------------------------------------------------------

    def start_servers(self):
        self.servers = [Server(self, rank) for rank in range(6)]
        members = [{"rank": server.rank, "uris": [server.sm]} for server in self.servers]
        self.group.write_text(json.dumps({"name": "demo", "epoch": 1, "members": members}))
        for server in self.servers:
            server.start()
            say("serve", f"rank {server.rank}", f"{server.sm}  {server.far[0]}")

    def store_and_fetch(self, uri, path, title):
        """Stores and fetches a file or a directory; the digests must agree."""
        name = f"demo/{path.name}"
        back = self.directory / "back" / path.name
        back.parent.mkdir(exist_ok=True)
        put = self.must("put", "--server", uri, path, name)
        get = self.must("get", "--server", uri, name + ("/" if path.is_dir() else ""), back)
        same = (sha256_below(path) == sha256_below(back) if path.is_dir()
                else sha256(path) == sha256(back))
        check(same, f"{path} differs after put and get over {uri}")
        listed = self.must("ls", "--server", uri, name)["objects"]
        size = sum(entry["bytes"] for entry in listed)
        check(size == put["bytes"] == get["bytes"] and len(listed) == put["objects"],
              f"the listing of {name} does not agree with what was stored")
        shutil.rmtree(back) if path.is_dir() else back.unlink()
        if path.is_dir():
            title = f"{title}, {put['objects']} files"
            rates = [f"{answer['objects'] / answer['seconds']:5.0f} files/s"
                     for answer in (put, get)]
        else:
            title = f"{title}, {size / MIB:.0f} MiB"
            rates = [f"{answer['mib_per_s']:5.0f} MiB/s  " for answer in (put, get)]
        say(uri.split(":")[0], title, f"put {rates[0]}  get {rates[1]}  sha256 same")

    def read_extent(self, uri, path):
        offset, length = 3 * MIB + 17, 5 * MIB
        out = self.directory / "extent"
        self.must("get", "--server", uri, f"demo/{path.name}", out, "--extent",
                  f"{offset}+{length}")
        with open(path, "rb") as file:
            file.seek(offset)
            check(file.read(length) == out.read_bytes(), "the extent differs from the file")
        say(uri.split(":")[0], f"extent of {length // MIB} MiB, read from leased memory",
            "bytes same")

    def broadcast(self, value, without=None):
        """Sets it on all servers but `without`, which is no member."""
        servers = [server for server in self.servers if server is not without]
        ranks = self.must("set", "--group", self.group, *TREE, "mode", value)["ranks"]
        check(len(ranks) == len(servers), f"{len(ranks)} ranks took part")
        for rank in ranks:
            check(rank["error"] is None, f"rank {rank['rank']} did not take the setting")
        self.check_holds(servers, value)
        say("set", f"mode = {value}, to every rank at once", f"read back from {len(servers)} servers")

    def check_holds(self, servers, value):
        shown = [self.must("show", "--server", server.sm, "mode")["value"] for server in servers]
        check(shown == [value] * len(servers), f"the servers hold {shown}")

    def pick_victim(self):
        """A rank with children, and all ranks of its subtree below it."""
        def ranks_of(tells):
            return [rank for one in tells for rank in (one["rank"], *ranks_of(one["tells"]))]
        tree = self.must("group", "tree", "--group", self.group, *TREE)["tells"]
        told = next(one for one in tree if one["tells"])
        below = ranks_of(told["tells"])
        check(below, "no rank has a child")
        return self.servers[told["rank"]], below

    def kill_during_put(self, victim, path):
        """Kills the server amid a put; checks the client's error and its time."""
        client = subprocess.Popen(
            [self.weft, "put", "--server", victim.far[0], path, "doomed", "--json"], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            arrived = self.wait_for_bytes(victim, client, 16 * MIB)
            victim.kill()
            killed = time.monotonic()
            out, error = client.communicate(timeout=STEP_SECONDS)
        finally:
            client.kill()
            client.wait()
        took = time.monotonic() - killed
        status = json.loads(out)["error"]
        check(client.returncode == UNAVAILABLE and status["code"] == "UNAVAILABLE",
              f"the client exited with {client.returncode}: {error.strip()}")
        check(status["effect"] == "none", f"the client reports effect {status['effect']}")
        check(took < 3.5, f"the client needed {took:.1f} s to notice")
        say("SIGKILL", f"rank {victim.rank}, {arrived // MIB} MiB into a put of 1 GiB",
            f"client after {took:.2f} s: {status['code']}, effect {status['effect']}")

    @staticmethod
    def wait_for_bytes(victim, client, wanted):
        deadline = time.monotonic() + STEP_SECONDS
        while time.monotonic() < deadline and client.poll() is None:
            arrived = sum(path.stat().st_size for path in victim.unfinished("doomed"))
            if arrived >= wanted:
                return arrived
            time.sleep(0.001)
        raise Failed("the put ended, or did not begin, before the server could be killed")

    def broadcast_around(self, victim, below):
        """The broadcast heals: only the dead rank fails, other ranks reach its subtree."""
        status, answer, _ = self.run("set", "--group", self.group, *TREE, "mode", "degraded")
        check(status == UNAVAILABLE, f"a broadcast with a dead rank exited with {status}")
        missed = [rank for rank in answer["ranks"] if rank["error"]]
        check([rank["rank"] for rank in missed] == [victim.rank],
              f"ranks {[rank['rank'] for rank in missed]} were missed")
        error = missed[0]["error"]
        check(error["code"] == "UNAVAILABLE", f"rank {victim.rank}: {error['code']}")
        living = [server for server in self.servers if server is not victim]
        self.check_holds(living, "degraded")
        names = " and ".join(map(str, below))
        say("set", f"rank {victim.rank} is dead: {error['code']}, effect {error['effect']}",
            f"healed: {names} below it reached by others, OK from {len(living)} of {len(self.servers)}")

    def take_out(self, victim):
        """The other servers read the change from the group file."""
        self.must("group", "evict", "--group", self.group, victim.rank)
        self.broadcast("without", without=victim)

    def bring_back(self, victim):
        self.must("group", "admit", "--group", self.group, "--rank", victim.rank, "--uri", victim.sm)

    def restart(self, victim):
        check(victim.unfinished("doomed"), "the killed server left nothing to clean up")
        victim.start()  # The sm name of the killed server is free again.
        check(not victim.unfinished("doomed"), "an unfinished object outlived the restart")
        status, _, _ = self.run("stat", "--server", victim.sm, "doomed")
        check(status == 5, f"half an object stands under its name (stat exited with {status})")
        say("serve", f"rank {victim.rank} again, same name", "no half object, nothing unfinished")

    def end_servers(self):
        for server in self.servers:
            status = server.end()
            check(status == 0, f"server {server.rank} exited with {status} on SIGTERM")
        say("SIGTERM", "all servers", "drained, exit status 0")

    # ---- the whole ------------------------------------------------------------------------------

    def files(self):
        """The files to move: real files of this machine, and a large one."""
        compiler = shutil.which("g++") or sys.executable
        if shutil.which("g++"):
            inner = subprocess.run(["g++", "-print-prog-name=cc1plus"], text=True,
                                   capture_output=True).stdout.strip()
            compiler = inner if os.path.isfile(inner) else compiler
        headers = next(path for path in map(pathlib.Path, [
            "/usr/include/asm-generic", "/usr/include/linux", "/usr/include", "/etc"])
            if path.is_dir())
        large = self.directory / "large"
        with open(large, "wb") as file:
            for _ in range(self.large_mib // 4):
                file.write(os.urandom(4 * MIB))
        return (pathlib.Path(os.path.realpath(compiler)), "the compiler"), \
               (headers, str(headers)), (large, "random bytes")

    def play(self):
        self.start_servers()
        files = self.files()
        for uri in self.servers[0].sm, self.servers[1].far[0], *self.servers[3].far[1:]:
            for path, title in files:
                self.store_and_fetch(uri, path, title)
            self.read_extent(uri, files[2][0])
        self.broadcast("normal")
        huge = self.directory / "huge"
        with open(huge, "wb") as file:
            file.truncate(1 << 30)
        victim, below = self.pick_victim()
        self.kill_during_put(victim, huge)
        self.broadcast_around(victim, below)
        self.take_out(victim)
        self.bring_back(victim)
        self.restart(victim)
        self.broadcast("healed")
        self.end_servers()

    def clean_up(self):
        for server in self.servers:
            if server.process and server.process.poll() is None:
                server.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--weft", default=REPOSITORY / "build/release/bin/weft")
    parser.add_argument("--rdma", metavar="HOST", help="over verbs, at this address")
    given = parser.parse_args()
    weft = os.path.abspath(given.weft)
    if not os.access(weft, os.X_OK):
        print(f"demo: {weft} is missing; run make build")
        return 1
    # SIGTERM and SIGHUP end the demo as SIGINT does: by an exception, so that it cleans up.
    for number in signal.SIGTERM, signal.SIGHUP:
        signal.signal(number, signal.default_int_handler)
    base = REPOSITORY / "build"
    directory = tempfile.mkdtemp(prefix="demo-", dir=base if base.is_dir() else None)
    demo = Demo(weft, pathlib.Path(directory), given.rdma)
    begin = time.monotonic()
    try:
        demo.play()
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"demo: FAILED: {error}")
        return 1
    except KeyboardInterrupt:
        print("demo: interrupted")
        return 130
    finally:
        demo.clean_up()
    print(f"demo: all checks passed, in {time.monotonic() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
