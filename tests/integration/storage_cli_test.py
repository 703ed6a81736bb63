#!/usr/bin/env python3
"""The storage commands from outside: real processes over shared memory and libfabric, their errors,
and the files that are left after a crash.

    storage_cli_test.py WEFT [--sanitized] [unittest arguments]
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = os.path.abspath(sys.argv[1])
SANITIZED = "--sanitized" in sys.argv
MIB = 1 << 20
OTHER_USER = 65534
PATIENCE = 60  # Seconds: separates a hang from a busy machine.


def weft(*arguments, **options):
    """Runs the command to its end: exit status, standard output, standard error."""
    done = subprocess.run([WEFT, *map(str, arguments)], capture_output=True, timeout=PATIENCE, **options)
    return done.returncode, done.stdout.decode(), done.stderr.decode()


class Server:
    def __init__(self, root, listen, more=(), environment=None):
        self.process = subprocess.Popen(
            [WEFT, "serve", "--root", root, "--listen", *listen, *map(str, more)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env={**os.environ, **(environment or {})})
        self.uris = []
        for _ in listen:
            words = self.process.stdout.readline().split()
            if words[:2] != ["listening", "on"]:
                raise AssertionError(f"no server: {self.process.stderr.read()}")
            self.uris.append(words[2])

    def end(self, how=signal.SIGTERM):
        """Ends it; returns its exit status and its standard error."""
        if self.process.stdout.closed:
            return self.process.returncode, ""
        if self.process.poll() is None:
            self.process.send_signal(how)
        return self.ended()

    def ended(self):
        """As end(), after an earlier signal: a second one would cut its calls short."""
        _, error = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, error


class StorageCase(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(tempfile.mkdtemp(prefix="weft-test-"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.root = self.directory / "root"
        self.root.mkdir()
        self.names = 0

    def sm_name(self):
        self.names += 1
        return f"sm://test-{os.getpid()}-{id(self)}-{self.names}"

    def serve(self, listen=None, root=None, more=()):
        server = Server(root or self.root, listen or [self.sm_name()], more)
        self.addCleanup(server.end, signal.SIGKILL)
        return server

    def file(self, name, content):
        path = self.directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    def ok(self, *arguments, **options):
        status, out, error = weft(*arguments, **options)
        self.assertEqual(status, 0, error)
        return out

    def fails(self, code, sentence, *arguments):
        status, _, error = weft(*arguments)
        self.assertEqual(status, code, error)
        self.assertIn(sentence, error)
        self.assertEqual(error.count("\n"), 1, error)


class RoundTrip(StorageCase):
    def test_files_of_every_size_over_each_transport(self):
        journal = self.directory / "journal"
        server = self.serve([self.sm_name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"],
                            more=["--journal", journal])
        for uri in server.uris:
            for size in 0, 1, 4 * MIB - 1, 4 * MIB, 4 * MIB + 1, 40 * MIB:
                source = self.file("source", os.urandom(size))
                self.ok("put", "--server", uri, source, "dir/object")
                back = self.directory / "back"
                self.ok("get", "--server", uri, "dir/object", back)
                self.assertTrue(source.read_bytes() == back.read_bytes(), f"{size} bytes, {uri}")
                stat = json.loads(self.ok("stat", "--server", uri, "dir/object", "--json"))
                self.assertEqual(stat["bytes"], size)
                listed = json.loads(self.ok("ls", "--server", uri, "--json"))["objects"]
                self.assertEqual([entry["name"] for entry in listed], ["dir/object"])
            self.ok("rm", "--server", uri, "dir/object")
            self.assertEqual(self.ok("ls", "--server", uri), "")
        self.assertEqual(server.end(), (0, ""))
        words = [line.split()[0] for line in journal.read_text().splitlines()]
        self.assertEqual(words, 3 * [*6 * ["put"], "delete"])

    def test_clients_of_all_contexts_share_the_objects(self):
        server = self.serve([self.sm_name(), "tcp://127.0.0.1:0"], more=["--contexts", "4"])
        for uri in server.uris:
            contents = {f"o{i}": os.urandom(i * 2 * MIB + i) for i in range(6)}
            for name, content in contents.items():  # Each connection on another context.
                self.ok("put", "--server", uri, self.file(name, content), name)
            for name, content in contents.items():
                self.ok("get", "--server", uri, name, self.directory / "back")
                self.assertTrue((self.directory / "back").read_bytes() == content, name)
            self.ok("put", "--server", uri, "-", "o0", input=b"later")
            for _ in range(4):
                self.assertEqual(self.ok("get", "--server", uri, "o0", "-"), "later")
        self.assertEqual(server.end(), (0, ""))

    def test_a_directory_there_and_back(self):
        uri = self.serve().uris[0]
        contents = {f"d{i % 3}/e/f{i}": os.urandom(i * 1000) for i in range(20)}
        for name, content in contents.items():
            self.file(f"tree/{name}", content)
        put = json.loads(self.ok("put", "--server", uri, self.directory / "tree", "--json"))
        self.assertEqual(put["objects"], 20)
        self.ok("get", "--server", uri, "tree/", self.directory / "back")
        in_the_way = self.file("in-the-way", b"a file")
        code, _, error = weft("get", "--server", uri, "tree/", in_the_way)
        self.assertEqual(code, 9, error)
        self.assertIn(f"can't make the directory '{in_the_way}'", error)
        self.assertEqual(in_the_way.read_bytes(), b"a file")
        for name, content in contents.items():
            self.assertEqual((self.directory / "back" / name).read_bytes(), content)

    def test_standard_input_and_output_and_extents(self):
        uri = self.serve().uris[0]
        content = os.urandom(9 * MIB + 5)
        self.ok("put", "--server", uri, "-", "piped", input=content)
        out = subprocess.run([WEFT, "get", "--server", uri, "piped", "-"], capture_output=True,
                             timeout=PATIENCE)
        self.assertTrue((out.returncode, out.stdout) == (0, content), out.stderr)
        extent = self.directory / "extent"
        self.ok("get", "--server", uri, "piped", extent, "--extent", f"{MIB}+5000")
        self.assertEqual(extent.read_bytes(), content[MIB:MIB + 5000])

    def test_the_first_usable_of_several_servers_counts(self):
        uri = self.serve().uris[0]
        source = self.file("source", b"x")
        self.ok("put", "--server", self.sm_name(), "--server", uri, source, "a")
        self.assertIn(" a\n", self.ok("ls", "--server", uri))

    @unittest.skipIf(SANITIZED, "sanitizers take memory of their own")
    def test_a_gibibyte_takes_64_mib_of_payload_memory(self):
        server = self.serve([self.sm_name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"])
        source = self.directory / "source"
        with open(source, "wb") as file:
            file.truncate(1 << 30)
        for uri in server.uris:  # The memory of the process before any payload.
            self.peak_mib("ls", "--server", uri)
        server_base = self.server_peak_mib(server)
        for uri in server.uris:
            base = self.peak_mib("ls", "--server", uri)
            back = self.directory / "back"
            for command in (["put", "--server", uri, source, "a", "--quiet"],
                            ["get", "--server", uri, "a", back, "--quiet"]):
                self.assertLess(self.peak_mib(*command) - base, 64, f"{command[0]} over {uri}")
        # Over sm the client's 32 MiB are mapped in the server as well, without being its own.
        self.assertLess(self.server_peak_mib(server) - server_base, 64 + 4)

    def peak_mib(self, *command):
        client = subprocess.Popen([WEFT, *map(str, command)], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(client.pid, 0)
        client.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(client.returncode, 0)
        return usage.ru_maxrss / 1024

    @staticmethod
    def server_peak_mib(server):
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
        return int(next(line for line in status.splitlines()
                        if line.startswith("VmHWM")).split()[1]) / 1024


class Failures(StorageCase):
    def test_what_is_asked_for_in_vain(self):
        uri = self.serve().uris[0]
        source = self.file("source", b"x")
        self.fails(5, "no object has the name 'a'", "get", "--server", uri, "a", self.directory / "x")
        self.fails(5, "no object has the name 'a'", "stat", "--server", uri, "a")
        self.fails(5, "no object has the name 'a'", "rm", "--server", uri, "a")
        self.fails(3, "has a part '.' or '..'", "put", "--server", uri, source, "../a")
        self.fails(3, "starts with '/'", "put", "--server", uri, source, "/etc/passwd")
        self.fails(5, "can't read", "put", "--server", uri, self.directory / "missing", "a")
        self.fails(5, "no setting has the key 'k'", "show", "--server", uri, "k")
        self.assertEqual(sorted(os.listdir(self.directory)), ["root", "source"])

    def test_addresses_that_nobody_serves(self):
        source = self.file("source", b"x")
        begin = time.monotonic()
        self.fails(14, "UNAVAILABLE", "put", "--server", self.sm_name(), source, "a")
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            for transport in "tcp", "ofi+tcp":
                self.fails(14, "UNAVAILABLE", "ls", "--server", f"{transport}://127.0.0.1:{port}")
        self.assertLess(time.monotonic() - begin, 8)
        self.fails(3, "address", "ls", "--server", "nonsense")

    def test_names_and_ports_in_use(self):
        server = self.serve([self.sm_name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"])
        other = self.directory / "other"
        other.mkdir()
        for uri in server.uris:
            self.fails(6, "ALREADY_EXISTS", "serve", "--root", other, "--listen", uri)
        self.fails(9, "served by another server", "serve", "--root", self.root, "--listen",
                   self.sm_name())
        server.end(signal.SIGKILL)
        again = self.serve([server.uris[0]])  # A dead server's name is free.
        self.assertEqual(again.end(), (0, ""))

    def test_group_files_that_are_missing_or_malformed(self):
        missing = self.directory / "missing.json"
        self.fails(5, str(missing), "set", "--group", missing, "k", "v")
        self.fails(5, str(missing), "serve", "--root", self.root, "--listen", self.sm_name(),
                   "--group", missing, "--rank", "0")
        malformed = self.file("bad.json", b'{"name":"g","epoch":1,"colour":"red","members":[]}')
        self.fails(3, "colour", "set", "--group", malformed, "k", "v")
        self.fails(3, str(malformed), "show", "--group", malformed, "k")
        good = self.file("good.json", json.dumps(
            {"name": "g", "epoch": 1, "members": [{"rank": 0, "uris": [self.sm_name()]}]}).encode())
        self.fails(11, "rank 1", "serve", "--root", self.root, "--listen", self.sm_name(),
                   "--group", good, "--rank", "1")

    def test_roots_that_can_not_be_served(self):
        missing = self.directory / "missing"
        self.fails(5, str(missing), "serve", "--root", missing, "--listen", self.sm_name())
        file = self.file("file", b"")
        self.fails(9, str(file), "serve", "--root", file, "--listen", self.sm_name())
        self.fails(5, str(missing / "journal"), "serve", "--root", self.root, "--listen",
                   self.sm_name(), "--journal", missing / "journal")
        self.fails(64, "--journal", "serve", "--root", self.root, "--listen", self.sm_name(),
                   "--journal", "")

    def test_a_root_that_is_not_writable(self):
        self.directory.chmod(0o755)
        self.root.chmod(0o555)
        options = {}
        if os.geteuid() == 0:  # Root ignores modes.
            options = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
            try:
                runs = subprocess.run([WEFT, "--version"], capture_output=True, **options)
            except PermissionError:
                self.skipTest("the command can't be run by another user")
            self.assertEqual(runs.returncode, 0)
        status, _, error = weft("serve", "--root", self.root, "--listen", self.sm_name(),
                                **options)
        self.assertEqual(status, 7, error)
        self.assertIn(f"can't write in the root '{self.root}'", error)

    def test_wrong_usage_is_64(self):
        for arguments in (["put"], ["get", "--server", "sm://x"], ["serve", "--root", "/tmp"],
                          ["show", "k"], ["set", "k", "v"],
                          ["get", "--server", "sm://x", "a", "b", "--extent", "x"]):
            self.assertEqual(weft(*arguments)[0], 64, arguments)


class Deaths(StorageCase):
    def unfinished(self):
        return list(self.root.glob(".*.weft-tmp"))

    def start_put(self, uri):
        """A put that has moved some bytes and waits for more."""
        client = subprocess.Popen([WEFT, "put", "--server", uri, "-", "a", "--json"],
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE)
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        client.stdin.write(bytes(20 * MIB))
        client.stdin.flush()
        deadline = time.monotonic() + PATIENCE
        while not any(path.stat().st_size >= 16 * MIB for path in self.unfinished()):
            self.assertLess(time.monotonic(), deadline, "nothing arrives")
            time.sleep(0.01)
        return client

    def finish(self, client, more):
        """Feeds the rest, whether it is read or not; returns the output of the client."""
        out, error = client.communicate(more, timeout=PATIENCE)
        return json.loads(out)["error"], error.decode()

    def test_a_server_killed_in_a_put(self):
        for listen in self.sm_name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0":
            server = self.serve([listen])
            client = self.start_put(server.uris[0])
            server.end(signal.SIGKILL)
            begin = time.monotonic()
            status, error = self.finish(client, bytes(MIB))
            self.assertLess(time.monotonic() - begin, 3.5)
            self.assertEqual(client.returncode, 14, error)
            self.assertEqual((status["code"], status["effect"]), ("UNAVAILABLE", "none"))
            self.assertEqual(len(self.unfinished()), 1)
            again = self.serve([listen])
            self.assertEqual(self.unfinished(), [])
            self.fails(5, "no object has the name 'a'", "stat", "--server", again.uris[0], "a")
            exited, error = again.end()
            self.assertEqual(exited, 0)
            self.assertIn("removed 1 unfinished object", error)

    def test_a_put_from_a_source_that_stays_silent_ends_with_its_server(self):
        server = self.serve()
        client = self.start_put(server.uris[0])
        server.end(signal.SIGKILL)
        self.assertEqual(client.wait(PATIENCE), 14)  # Its standard input is open.
        self.assertIn("UNAVAILABLE", client.stderr.read().decode())

    def test_a_put_from_a_source_that_stays_silent_is_refused_at_once(self):
        server = self.serve()
        (self.root / "directory").mkdir()
        client = subprocess.Popen([WEFT, "put", "--server", server.uris[0], "-", "directory"],
                                  stdin=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(client.communicate)
        self.addCleanup(client.kill)
        self.assertNotIn(client.wait(PATIENCE), (0, 14))
        self.assertIn("can't put 'directory'", client.stderr.read().decode())

    def test_a_client_killed_in_a_put(self):
        for listen in self.sm_name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0":
            server = self.serve([listen])
            client = self.start_put(server.uris[0])
            client.kill()
            client.wait()
            deadline = time.monotonic() + PATIENCE
            while self.unfinished():
                self.assertLess(time.monotonic(), deadline, "the upload outlives its client")
                time.sleep(0.01)
            self.fails(5, "no object has the name", "stat", "--server", server.uris[0], "a")
            self.assertEqual(server.end(), (0, ""))

    def test_a_server_that_is_told_to_end_in_a_put(self):
        server = self.serve()
        client = self.start_put(server.uris[0])
        server.process.terminate()
        deadline = time.monotonic() + PATIENCE
        while weft("stat", "--server", server.uris[0], "a")[0] != 14:
            self.assertLess(time.monotonic(), deadline, "the server takes calls for ever")
        _, error = self.finish(client, bytes(8 * MIB))
        self.assertEqual(client.returncode, 14, error)
        self.assertEqual(server.ended(), (0, ""))
        self.assertEqual(self.unfinished(), [])

    def test_a_server_that_ends_with_many_puts_under_way(self):
        big = self.directory / "big"
        with open(big, "wb") as file:
            file.truncate(200 * MIB)
        for _ in range(4):
            server = Server(self.root, [self.sm_name()], environment={"WEFT_DRAIN": "5"})
            self.addCleanup(server.end, signal.SIGKILL)
            clients = [subprocess.Popen([WEFT, "put", "--server", server.uris[0], big, f"b{i}"],
                                        stderr=subprocess.DEVNULL) for i in range(6)]
            deadline = time.monotonic() + PATIENCE
            while not any(path.stat().st_size > 0 for path in self.unfinished()):
                self.assertLess(time.monotonic(), deadline, "nothing arrives")
                time.sleep(0.001)
            status, error = server.end()
            self.assertIn(status, (0, 4), error)  # All ended in time, or some did not.
            for client in clients:
                self.assertIn(client.wait(PATIENCE), (0, 14))
            self.assertEqual(self.unfinished(), [])


    def test_an_interrupted_get_leaves_no_file_and_no_directory(self):
        (self.root / "runs/deep").mkdir(parents=True)
        with open(self.root / "runs/deep/big", "wb") as big:
            big.truncate(8 << 30)  # Sparse: long to fetch, and nothing on the disk.
        server = self.serve()
        out = self.directory / "out"
        client = subprocess.Popen([WEFT, "get", "--server", server.uris[0], "runs/", out],
                                  stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        until = time.monotonic() + PATIENCE
        while not (out / "deep").exists() and time.monotonic() < until:
            time.sleep(0.001)
        client.send_signal(signal.SIGINT)
        _, error = client.communicate(timeout=PATIENCE)
        self.assertEqual((client.returncode, error), (-signal.SIGINT, ""))
        self.assertFalse(out.exists())
        self.assertEqual(self.unfinished(), [])

    def test_a_get_that_fails_leaves_no_directory(self):
        (self.root / "runs/deep").mkdir(parents=True)
        (self.root / "runs/deep/one").write_bytes(b"x")
        server = self.serve()
        out = self.directory / "out"
        (out / "deep/one").mkdir(parents=True)  # In place of the file.
        shutil.copytree(out, self.directory / "before")
        self.assertEqual(weft("get", "--server", server.uris[0], "runs/", out)[0], 9)
        self.assertTrue((out / "deep/one").is_dir())
        elsewhere = self.directory / "elsewhere"
        (self.root / "runs/deep/one").chmod(0)
        if os.getuid() != 0:
            self.assertNotEqual(weft("get", "--server", server.uris[0], "runs/", elsewhere)[0], 0)
            self.assertFalse(elsewhere.exists())


class Groups(StorageCase):
    def test_sets_at_once_leave_all_ranks_alike(self):
        names = [self.sm_name() for _ in range(3)]
        group = self.file("group.json", json.dumps(
            {"name": "g", "epoch": 1,
             "members": [{"rank": i, "uris": [name]} for i, name in enumerate(names)]}).encode())
        for rank, name in enumerate(names):
            root = self.directory / f"root{rank}"
            root.mkdir()
            self.serve([name], root, ["--group", group, "--rank", rank])
        for round_ in range(20 if SANITIZED else 100):
            clients = [subprocess.Popen([WEFT, "set", "--group", group, "--json", "k",
                                         f"{round_} of {i}"], stdout=subprocess.PIPE, text=True)
                       for i in range(2)]
            said = [(json.loads(client.communicate(timeout=PATIENCE)[0]), client.returncode)
                    for client in clients]
            shown = json.loads(self.ok("show", "--group", group, "--json", "k"))["ranks"]
            kept = {(rank["value"], rank["version"]) for rank in shown}
            self.assertEqual(len(kept), 1, kept)
            version = kept.pop()[1]
            for answer, status in said:
                for rank in answer["ranks"]:
                    if rank["error"] is None:
                        continue
                    self.assertEqual(rank["error"]["code"], "FAILED_PRECONDITION")
                    self.assertIn(version, rank["error"]["text"])
                    self.assertEqual(status, 9)
        out = self.ok("show", "--group", group, "--versions", "k")
        self.assertEqual(out.count(f"(version {version})"), 3)

    def test_a_setting_reaches_every_rank_and_a_dead_one_is_named(self):
        names = [self.sm_name() for _ in range(3)]
        group = self.file("group.json", json.dumps(
            {"name": "g", "epoch": 1,
             "members": [{"rank": i, "uris": [name]} for i, name in enumerate(names)]}).encode())
        servers = []
        for rank, name in enumerate(names):
            root = self.directory / f"root{rank}"
            root.mkdir()
            servers.append(self.serve([name], root, ["--group", group, "--rank", rank]))
        out = self.ok("set", "--group", group, "mode", "fast")
        self.assertEqual(out.splitlines(), [f"rank {i}: OK, mode = fast" for i in range(3)])
        for name in names:
            self.assertEqual(self.ok("show", "--server", name, "mode"), "fast\n")
        servers[1].end(signal.SIGKILL)
        for command in (["set", "--group", group, "mode", "slow"],
                        ["show", "--group", group, "mode"]):
            status, out, error = weft(*command)
            self.assertEqual(status, 14, error)
            self.assertIn("rank 1", error)
            told = json.loads(weft(*command, "--json")[1])
            self.assertEqual(told["error"]["number"], 14)
            self.assertEqual([rank["error"] is None for rank in told["ranks"]],
                             [True, False, True])
            lines = out.splitlines()
            self.assertEqual((lines[0], lines[2]),
                             ("rank 0: OK, mode = slow", "rank 2: OK, mode = slow"))
            self.assertTrue(lines[1].startswith("rank 1: UNAVAILABLE: "), lines[1])


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + [argument for argument in sys.argv[2:]
                                        if argument != "--sanitized"])
