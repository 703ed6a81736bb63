#!/usr/bin/env python3
"""Bad input from outside, row by row: the exit status, one sentence that names fault and place, the
same as JSON, no partial file, and a server that serves the next client.

    bad_input_test.py WEFT [--sanitized] [unittest arguments]
"""
import array
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import unittest

from storage_cli_test import MIB, OTHER_USER, PATIENCE, SANITIZED, WEFT, Server, StorageCase, weft

SEED = int(os.environ.get("BAD_INPUT_SEED", "20261121"))


def can_mount():
    """Whether this process can mount, in a namespace that ends with the process."""
    command = ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


class BadInput(StorageCase):
    """A server with one object in it, and the checks after every refusal."""

    def setUp(self):
        super().setUp()
        # Sockets of sm in a directory of this test; a path has at most 107 bytes.
        self.runtime = self.directory / "run"
        self.runtime.mkdir(mode=0o700)
        before = os.environ.get("XDG_RUNTIME_DIR")
        os.environ["XDG_RUNTIME_DIR"] = str(self.runtime)
        self.addCleanup(lambda: os.environ.pop("XDG_RUNTIME_DIR") if before is None else
                        os.environ.update(XDG_RUNTIME_DIR=before))
        self.refusals = 0
        self.source = self.file("source", b"good bytes")
        self.server = self.serve([self.sm_name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0"])
        self.uri = self.server.uris[0]
        self.ok("put", "--server", self.uri, self.source, "good")
        self.listed = self.ok("ls", "--server", self.uri)

    def refused(self, status, words, *arguments, **options):
        # The sentence is the same with --json; every eighth refusal also runs without it.
        self.refusals += 1
        for flags in ((), ("--json",)) if self.refusals % 8 == 1 else (("--json",),):
            code, out, error = weft(*arguments, *flags, **options)
            said = f"weft {arguments} {flags}: exit {code}\n{error}{out}"
            self.assertEqual(code, status, said)
            self.assertEqual(error.count("\n"), 1, said)
            self.assertTrue(error.startswith("weft: "), said)
            for word in words:
                self.assertIn(word, error, said)
            if flags:
                told = json.loads(out)["error"]
                self.assertEqual(told["number"], status, said)
                self.assertTrue(told["code"] and told["text"], said)
                for word in words:
                    self.assertIn(word, told["code"] + told["text"] + told["peer"], said)
            elif arguments[0] != "ping":
                self.assertEqual(out, "", said)

    def check_unharmed(self):
        for uri in self.server.uris:
            self.ok("ping", uri, "--count", "1", "--timeout", "30s")
        self.assertEqual(self.ok("ls", "--server", self.uri), self.listed)
        self.ok("get", "--server", self.uri, "good", self.directory / "back")
        self.assertEqual((self.directory / "back").read_bytes(), b"good bytes")
        (self.directory / "back").unlink()
        self.check_nothing_unfinished()

    def check_nothing_unfinished(self):
        deadline = time.monotonic() + PATIENCE  # A server detects a client's death a little later.
        while left := list(self.directory.rglob(".*.weft-tmp")):
            self.assertLess(time.monotonic(), deadline, left)
            time.sleep(0.02)

    def client_commands(self, uri):
        yield "put", "--server", uri, self.source, "new"
        yield "get", "--server", uri, "good", self.directory / "new"
        yield "ls", "--server", uri
        yield "stat", "--server", uri, "good"
        yield "rm", "--server", uri, "good"
        yield "show", "--server", uri, "key"
        yield "ping", uri
        yield "info", uri


class Addresses(BadInput):
    def test_malformed_and_unknown_addresses(self):
        for uri, status, words in (
                ("", 3, ["address ''"]),
                ("nonsense", 3, ["'nonsense'", "sm://name"]),
                ("://x", 3, ["'://x'"]),
                ("bogus://x", 3, ["'bogus://x'", "unknown transport 'bogus'", "sm://name"]),
                ("ofi+shm://x", 3, ["'ofi+shm://x'", "sm://name"]),
                ("sm://", 3, ["'sm://'", "letters"]),
                ("sm://../../etc", 3, ["'sm://../../etc'", "letters"]),
                ("sm://a\nb", 3, ["letters"]),
                ("sm://" + "x" * 65, 3, ["1 to 64"]),
                ("sm://" + "x" * 70000, 3, ["too long"]),
                ("tcp://127.0.0.1", 3, ["host:port"]),
                ("tcp://127.0.0.1:99999", 3, ["65535"]),
                ("unix://relative", 3, ["unix:///path"]),
                ("unix:///", 3, ["unix:///path"]),
                ("unix:///" + "x" * 101, 3, ["100 bytes"]),
                ("ofi+tcp://127.0.0.1", 3, ["host:port"]),
                ("ofi+tcp://127.0.0.1:", 3, ["host:port"]),
                ("ofi+tcp://127.0.0.1:-1", 3, ["host:port"]),
                ("ofi+tcp://127.0.0.1:65536", 3, ["65535"]),
                ("ofi+tcp://127.0.0.1:1x", 3, ["host:port"]),
                ("ofi+tcp://[::1:5", 3, ["[host]:port"]),
                ("sim://x", 12, ["sim", "available: sm"]),
                ("ofi+verbs://h:1", 14, ["ofi+verbs://h:1", "verbs"])):
            for command in self.client_commands(uri):
                self.refused(status, words, *command)
            root = self.directory / "other"
            root.mkdir(exist_ok=True)
            self.refused(status, words, "serve", "--root", root, "--listen", uri)
        self.assertFalse((self.directory / "new").exists())
        self.check_unharmed()

    def test_words_that_are_no_command(self):
        code, out, error = weft("frobnicate", "--server", self.uri)
        self.assertEqual((code, out), (64, ""), error)
        self.assertIn("there is no command 'frobnicate'", error)
        self.ok("put", "--server", self.uri, self.source, "below/one")
        self.refused(3, ["standard output"], "get", "--server", self.uri, "below/", "-")
        self.ok("rm", "--server", self.uri, "below/one")
        self.assertFalse((self.directory / "-").exists())
        self.check_unharmed()

    def test_addresses_where_nobody_is(self):
        seconds_max = 2 * 4 * (10 if SANITIZED else 1)
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            port = unused.getsockname()[1]
            for uri in (self.sm_name(), f"tcp://127.0.0.1:{port}",
                        f"ofi+tcp://127.0.0.1:{port}"):
                for command in self.client_commands(uri):
                    begin = time.monotonic()
                    self.refused(14, ["UNAVAILABLE", uri.split("//")[1]], *command)
                    self.assertLess(time.monotonic() - begin, seconds_max, command)
        for transport in "tcp", "ofi+tcp":
            self.refused(14, ["no-such-host.invalid"], "ls", "--server",
                         f"{transport}://no-such-host.invalid:7000")
            self.refused(3, ["port"], "ls", "--server", f"{transport}://127.0.0.1:0")
        self.assertFalse((self.directory / "new").exists())
        self.check_unharmed()

    def test_names_and_ports_in_use(self):
        root = self.directory / "other"
        root.mkdir()
        for uri in self.server.uris:
            self.refused(6, ["ALREADY_EXISTS", uri], "serve", "--root", root, "--listen", uri)
        with socket.socket() as stranger:
            stranger.bind(("127.0.0.1", 0))
            stranger.listen()
            for transport in "tcp", "ofi+tcp":
                uri = f"{transport}://127.0.0.1:{stranger.getsockname()[1]}"
                self.refused(6, ["ALREADY_EXISTS", uri], "serve", "--root", root, "--listen", uri)
        # The second address fails: the first is free again.
        mine = self.sm_name()
        self.refused(6, [self.uri], "serve", "--root", root, "--listen", mine, "--listen", self.uri)
        self.assertEqual(self.serve([mine], root).end(), (0, ""))
        for transport in "tcp", "ofi+tcp":  # An unused address (RFC 5737).
            self.refused(14, ["192.0.2.1"], "serve", "--root", root, "--listen",
                         f"{transport}://192.0.2.1:7000")
        self.check_unharmed()

    def test_paths_of_unix_sockets_that_belong_to_others(self):
        root = self.directory / "other"
        root.mkdir()
        path = self.runtime / "path"
        uri = f"unix://{path}"
        lock = pathlib.Path(f"{path}.lock")
        serve = ("serve", "--root", root, "--listen", uri)
        path.write_bytes(b"precious")
        self.refused(6, ["ALREADY_EXISTS", uri, "a file is there"], *serve)
        self.assertEqual(path.read_bytes(), b"precious")
        path.unlink()
        for kind in socket.SOCK_STREAM, socket.SOCK_DGRAM:
            with socket.socket(socket.AF_UNIX, kind) as stranger:
                stranger.bind(str(path))
                if kind == socket.SOCK_STREAM:
                    stranger.listen()
                self.refused(6, ["ALREADY_EXISTS", uri, "live process"], *serve)
                with socket.socket(socket.AF_UNIX, kind) as caller:
                    caller.connect(str(path))
            path.unlink()
        lock.write_bytes(b"precious")
        self.refused(6, ["ALREADY_EXISTS", uri, str(lock)], *serve)
        self.assertEqual(lock.read_bytes(), b"precious")
        lock.unlink()
        # The path of any dead owner is free.
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.bind(str(path))
        self.assertEqual(self.serve([uri], root).end(), (0, ""))
        # A file that replaced the server's socket stays at its end.
        server = self.serve([uri], root)
        path.unlink()
        path.write_bytes(b"precious")
        self.assertEqual(server.end(), (0, ""))
        self.assertEqual(path.read_bytes(), b"precious")
        self.assertFalse(lock.exists())
        self.check_unharmed()


class GroupFiles(BadInput):
    MEMBER = {"rank": 0, "uris": ["sm://absent"]}

    def check(self, path, status, words):
        other = self.directory / "other"
        other.mkdir(exist_ok=True)
        for command in (("set", "--group", path, "key", "value"), ("show", "--group", path, "key"),
                        ("serve", "--root", other, "--listen", self.sm_name(), "--group", path,
                         "--rank", "0")):
            self.refused(status, [str(path)] + words, *command)
        self.assertEqual(os.listdir(other), [])

    def test_a_file_that_is_not_there_or_is_none(self):
        self.check(self.directory / "missing.json", 5, ["No such file"])
        self.check(self.directory, 9, ["Is a directory"])
        self.check(self.source / "below", 9, ["Not a directory"])
        fifo = self.directory / "fifo"
        os.mkfifo(fifo)
        self.check(fifo, 3, [])
        self.check_unharmed()

    def test_malformed_files(self):
        member = self.MEMBER
        def group(**changes):
            whole = {"name": "g", "epoch": 1, "members": [member], **changes}
            return {key: value for key, value in whole.items() if value is not None}
        for content, words in (
                (b"", []),
                (b"\0" * 100, []),
                (os.urandom(1000), []),
                (b"members: rank 0", []),
                (b"[]", []),
                (b'"group"', []),
                (b"{", []),
                (b'{"name":"g","epoch":1,"members":[' + b"[" * 100_000, []),
                (b'{"name":' * 100_000, []),
                (group(name=None), ["no name"]),
                (group(name=7), []),
                (group(name=""), ["no name"]),
                (group(epoch=None), ["no epoch"]),
                (group(epoch=-1), []),
                (group(epoch="one"), []),
                (group(members=None), ["no members"]),
                (group(members=[]), ["no members"]),
                (group(members={}), []),
                (group(members=["sm://a"]), []),
                (group(members=[{"uris": ["sm://a"]}]), ["member 0", "no rank"]),
                (group(members=[{"rank": "zero", "uris": ["sm://a"]}]), []),
                (group(members=[{"rank": -1, "uris": ["sm://a"]}]), []),
                (group(members=[{"rank": 0.5, "uris": ["sm://a"]}]), []),
                (group(members=[member, member]), ["rank 0 is there twice"]),
                (group(members=[member, {**member, "rank": 7}]), ["ranks 0 and 7 have one address"]),
                (group(members=[member, {**member, "rank": 2**32}]), []),
                (group(members=[{**member, "incarnation": -1}]), []),
                (group(members=[{**member, "draining": "soon"}]), []),
                (group(members=[{**member, "uris": 17 * ["sm://a"]}]), ["rank 0", "16 addresses"]),
                (group(name="x" * 257), ["256 bytes"]),
                (group(members=[{"rank": 0}]), ["rank 0", "no address"]),
                (group(members=[{"rank": 0, "uris": []}]), ["rank 0", "no address"]),
                (group(members=[{"rank": 0, "uris": {"a": "sm://a"}}]), []),
                (group(members=[{"rank": 0, "uris": [7]}]), ["members[0].uris[0]"]),
                (group(members=[{"rank": 0, "uris": ["bogus://a"]}]), ["rank 0", "bogus"]),
                (group(members=[{**member, "colour": "red"}]), ["colour"]),
                (group(colour="red"), ["colour"])):
            if not isinstance(content, bytes):
                content = json.dumps(content).encode()
            with self.subTest(content=content[:80]):
                self.check(self.file("bad.json", content), 3, words)
        self.check_unharmed()

    def test_a_huge_file_is_refused_without_reading_it_whole(self):
        huge = self.directory / "huge.json"
        with open(huge, "wb") as file:
            file.truncate(1 << 40)
        self.check(huge, 3, ["too large"])

    def test_ranks_that_the_group_does_not_have(self):
        good = self.file("good.json", json.dumps(
            {"name": "g", "epoch": 1, "members": [self.MEMBER]}).encode())
        serve = ("serve", "--root", self.directory, "--listen", self.sm_name(), "--group", good)
        self.refused(11, ["no rank 1"], *serve, "--rank", "1")
        for rank in "-1", "x", "", str(2**32), "0.5":
            self.refused(64, ["--rank"], *serve, "--rank", rank)
        self.refused(64, ["--rank"], *serve)
        self.refused(64, ["--group"], *serve[:-2], "--rank", "0")

    def test_values_that_are_no_settings(self):
        for key, value, status, words in (
                ("", "v", 3, ["1 to 256 bytes"]), ("k" * 257, "v", 3, ["1 to 256 bytes"]),
                ("k", "v" * 4097, 3, ["4096 bytes"]), (b"\xff", "v", 3, ["key", "not UTF-8"]),
                ("k", b"\xff", 3, ["value", "not UTF-8"])):
            group = self.file("here.json", json.dumps({"name": "h", "epoch": 1, "members": [
                {"rank": 0, "uris": [self.sm_name()]}]}).encode())
            uri = json.loads(group.read_text())["members"][0]["uris"][0]
            root = self.directory / "ranked"
            root.mkdir(exist_ok=True)
            server = self.serve([uri], root, ["--group", group, "--rank", 0])
            done = subprocess.run([WEFT, "set", "--group", group, key, value],
                                  capture_output=True, timeout=60, check=False)
            self.assertEqual(done.returncode, status, done.stderr)
            for word in words:
                self.assertIn(word, done.stderr.decode())
            self.assertEqual(done.stderr.count(b"\n"), 1)
            server.end()


class Names(BadInput):
    def commands(self, name):
        yield "put", "--server", self.uri, self.source, name
        yield "get", "--server", self.uri, name, self.directory / "new"
        yield "get", "--server", self.uri, name, self.directory / "new", "--extent", "0+1"
        yield "stat", "--server", self.uri, name
        yield "rm", "--server", self.uri, name

    def test_names_that_lead_out_or_are_none(self):
        for name, word in (("..", "'..'"), ("../x", "'..'"), ("a/../../x", "'..'"), ("./x", "'.'"),
                           ("a/.", "'.'"), ("/etc/passwd", "starts with '/'"),
                           (str(self.directory / "x"), "starts with '/'"), ("a//b", "empty part"),
                           ("a" * 201, "200 bytes"), ("a" * 255, "200 bytes"),
                           ("/".join("a" * 33), "32 parts"), ("ab/" * 500 + "a", "1024 bytes"),
                           ("a" * 70_000, "1024 bytes"), ("x.weft-tmp", "unfinished")):
            for command in self.commands(name):
                self.refused(3, ["INVALID_ARGUMENT", "object name", word], *command)
        for name in "..", "../", "/etc", "a//b":
            self.refused(3, ["object name"], "ls", "--server", self.uri, name)
        for command in self.commands(b"bad \xff\xfe"):
            done = subprocess.run([WEFT, *command], capture_output=True, timeout=60, check=False)
            self.assertEqual((done.returncode, done.stderr.count(b"\n")), (3, 1), done.stderr)
            self.assertIn(b"is not UTF-8", done.stderr)
        self.assertEqual(sorted(os.listdir(self.directory)), ["root", "run", "source"])
        self.check_unharmed()

    def test_an_empty_name_is_no_default(self):
        for command in list(self.commands(""))[1:]:
            self.refused(3, ["object name", "empty"], *command)
        self.refused(64, ["name", "empty"], "put", "--server", self.uri, self.source, "")
        self.refused(64, ["file", "empty"], "get", "--server", self.uri, "good", "")
        self.check_unharmed()

    def test_links_that_lead_out(self):
        outside = self.directory / "outside"
        outside.mkdir()
        (outside / "secret").write_text("secret")
        (self.root / "dir").symlink_to(outside)
        (self.root / "up").symlink_to("..")
        (self.root / "file").symlink_to(outside / "secret")
        (self.root / "loop").symlink_to("loop")
        for name in "dir/secret", "up/outside/secret":
            for command in self.commands(name):
                self.refused(7, ["PERMISSION_DENIED", name, "leads out of the server's root"],
                             *command)
        for name in "file", "loop":
            for command in list(self.commands(name))[1:4]:
                self.refused(7, [name, "leads out"], *command)
        self.ok("rm", "--server", self.uri, "file")  # The link, not its target.
        self.assertEqual((outside / "secret").read_text(), "secret")
        self.assertEqual(os.listdir(outside), ["secret"])
        self.check_unharmed()

    def test_what_is_not_there(self):
        for command in list(self.commands("no/such"))[1:]:
            self.refused(5, ["NOT_FOUND", "'no/such'"], *command)
        self.refused(5, ["'no/'"], "get", "--server", self.uri, "no/", self.directory / "new")
        self.refused(5, [str(self.directory / "gone")], "put", "--server", self.uri,
                     self.directory / "gone", "a")
        self.refused(11, ["10 bytes", "none at 10"], "get", "--server", self.uri, "good",
                     self.directory / "new", "--extent", "10+1")
        self.refused(3, ["16 MiB"], "get", "--server", self.uri, "good", self.directory / "new",
                     "--extent", f"0+{16 * MIB + 1}")
        self.assertFalse((self.directory / "new").exists())
        self.check_unharmed()

    def test_directories_where_files_are_expected(self):
        (self.root / "d").mkdir()
        for command in self.commands("d"):
            self.refused(9, ["FAILED_PRECONDITION", "'d'", "directory"], *command)
        self.refused(9, ["'good/x'"], "put", "--server", self.uri, self.source, "good/x")
        (self.root / "d").rmdir()
        self.check_unharmed()

    def test_odd_names_are_names_and_take_one_line(self):
        for name in "a\nb", "\x1b[2Jx", "räksmörgås/日本", "-x", " ", "a" * 200, "~", "*", "\u009bx":
            self.ok("put", "--server", self.uri, self.source, "--", name)
            listed = self.ok("ls", "--server", self.uri)
            self.assertEqual(listed.count("\n"), 2, listed)
            self.assertFalse([c for c in listed if (ord(c) < 32 or 127 <= ord(c) < 160)
                              and c != "\n"], listed)
            objects = json.loads(self.ok("ls", "--server", self.uri, "--json"))["objects"]
            self.assertIn(name, [entry["name"] for entry in objects])
            self.ok("get", "--server", self.uri, "--", name, self.directory / "back")
            self.ok("rm", "--server", self.uri, "--", name)
        self.check_unharmed()


class Roots(BadInput):
    def serve_refused(self, status, words, root, **options):
        self.refused(status, words, "serve", "--root", root, "--listen", self.sm_name(), **options)

    def test_roots_that_are_none(self):
        self.serve_refused(5, ["root", "''"], "")
        self.serve_refused(5, [str(self.directory / "missing")], self.directory / "missing")
        self.serve_refused(9, [str(self.source), "Not a directory"], self.source)
        self.serve_refused(9, [str(self.source / "x")], self.source / "x")
        loop = self.directory / "loop"
        loop.symlink_to(loop)
        self.serve_refused(9, [str(loop)], loop)
        self.serve_refused(9, [str(self.root), "served by another server"], self.root)
        self.check_unharmed()

    def test_roots_that_take_no_files(self):
        for root in "/proc", "/sys":
            self.serve_refused(7, ["can't write in the root", root], root)

    @unittest.skipUnless(os.geteuid() == 0, "only root has a second user")
    def test_a_root_of_somebody_else(self):
        root = self.directory / "closed"
        root.mkdir(mode=0o755)
        self.directory.chmod(0o755)
        away = {"user": OTHER_USER, "group": OTHER_USER, "extra_groups": []}
        probe = subprocess.run(["/bin/test", "-x", WEFT], check=False, **away)
        if probe.returncode != 0:
            self.skipTest("the command can't be run by another user")
        # A directory of its own for sockets, so that only the root is refused.
        mine = self.directory / "nobody"
        mine.mkdir(mode=0o700)
        os.chown(mine, OTHER_USER, OTHER_USER)
        environment = {**os.environ, "XDG_RUNTIME_DIR": str(mine)}
        self.serve_refused(7, ["can't write in the root", str(root)], root, env=environment, **away)
        root.chmod(0o700)
        self.serve_refused(7, [str(root)], root, env=environment, **away)
        self.assertEqual(os.listdir(root), [])

    @unittest.skipUnless(can_mount(), "mounting is not allowed here")
    def test_a_root_on_a_read_only_file_system(self):
        root = self.directory / "read-only"
        root.mkdir()
        script = 'mount -t tmpfs -o ro none "$0" && exec "$@"'
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", script, root, WEFT, "serve", "--root", root,
             "--listen", self.sm_name()], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 7, done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertIn(f"can't write in the root '{root}'", done.stderr)
        self.assertIn("Read-only file system", done.stderr)

    @unittest.skipUnless(can_mount(), "mounting is not allowed here")
    def test_a_disk_that_fills_up(self):
        root = self.directory / "small"
        root.mkdir()
        uri = self.sm_name()
        script = 'mount -t tmpfs -o size=8m none "$0" && exec "$@"'
        process = subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", script, root, WEFT, "serve", "--root", root,
             "--listen", uri], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        self.assertTrue(process.stdout.readline().startswith("listening on"))
        inside = f"/proc/{process.pid}/root{root}"
        large = self.file("large", bytes(20 * MIB))
        self.ok("put", "--server", uri, self.source, "small")
        self.refused_put(8, ["RESOURCE_EXHAUSTED", "'large'", "No space left"], uri, large)
        deadline = time.monotonic() + PATIENCE
        while os.listdir(inside) != ["small"]:  # The partial file is removed a moment later.
            self.assertLess(time.monotonic(), deadline, os.listdir(inside))
            time.sleep(0.02)
        self.ok("put", "--server", uri, self.source, "again")
        # A put over an existing object fails, and the old object stays.
        self.refused_put(8, ["'small'"], uri, large, "small")
        self.ok("get", "--server", uri, "small", self.directory / "back")
        self.assertEqual((self.directory / "back").read_bytes(), b"good bytes")
        process.terminate()
        self.assertEqual(process.wait(30), 0)

    def refused_put(self, status, words, uri, source, *name):
        code, out, error = weft("put", "--server", uri, source, *name, "--json")
        self.assertEqual((code, error.count("\n")), (status, 1), error)
        for word in words:
            self.assertIn(word, error)
        self.assertEqual(json.loads(out)["error"]["effect"], "none")


class Output(BadInput):
    def test_targets_that_are_no_files_stay_what_they_are(self):
        fifo = self.directory / "fifo"
        os.mkfifo(fifo)
        link = self.directory / "link-to-fifo"
        link.symlink_to(fifo)
        targets = [fifo, link]
        with contextlib.suppress(PermissionError):
            device = self.directory / "device"
            os.mknod(device, 0o20666, os.makedev(1, 3))  # A null device of this test.
            targets.append(device)
        before = {path: path.lstat() for path in targets}
        for path in targets:
            for more in [], ["--extent", "0+1"]:
                self.refused(9, [str(path), "no regular file"], "get", "--server", self.uri, "good",
                             path, *more)
            self.assertEqual((path.lstat().st_ino, path.lstat().st_mode),
                             (before[path].st_ino, before[path].st_mode))
        dangling = self.directory / "dangling"
        dangling.symlink_to("nowhere")
        self.refused(5, [str(dangling)], "get", "--server", self.uri, "good", dangling)
        self.refused(5, [str(self.directory / "no")], "get", "--server", self.uri, "good",
                     self.directory / "no" / "file")
        self.refused(9, [str(self.source)], "get", "--server", self.uri, "good",
                     self.source / "file")
        self.check_unharmed()

    def test_a_link_to_a_file_stays_a_link(self):
        real = self.file("real", b"old")
        link = self.directory / "link"
        link.symlink_to("real")
        self.ok("get", "--server", self.uri, "good", link)
        self.assertTrue(link.is_symlink())
        self.assertEqual(real.read_bytes(), b"good bytes")

    def test_output_that_is_lost_is_an_error(self):
        for command in (["ls", "--server", self.uri], ["get", "--server", self.uri, "good", "-"],
                        ["stat", "--server", self.uri, "good", "--json"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([WEFT, *command], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 8, done.stderr)
            self.assertIn("standard output: No space left", done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)
        self.check_unharmed()

    def test_descriptors_that_are_closed_are_not_taken_for_files(self):
        for command, closed in ((["ls", "--server", self.uri], "1"),
                                (["get", "--server", self.uri, "good", "-"], "1"),
                                (["put", "--server", self.uri, "-", "new"], "0")):
            done = subprocess.run(["sh", "-c", f'exec "$@" {closed}>&-', "sh", WEFT, *command],
                                  stderr=subprocess.PIPE, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 9, done.stderr)
            self.assertIn("Bad file descriptor", done.stderr)
        self.check_unharmed()

    def test_a_get_that_is_stopped_leaves_nothing(self):
        self.big()
        place = self.directory / "place"
        place.mkdir()
        (place / "big").write_bytes(b"old")
        for stop in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
            for _ in range(3):
                client = self.start("get", "--server", self.uri, "big", place / "big")
                self.await_open_below(place, client)
                time.sleep(random.uniform(0, 0.25))
                client.send_signal(stop)
                _, error = client.communicate(timeout=PATIENCE)
                self.assertEqual(os.listdir(place), ["big"], stop)
                if client.returncode == 0:  # The get ended before the signal.
                    self.assertEqual((place / "big").stat().st_size, 200 * MIB)
                else:
                    self.assertEqual(client.returncode, -stop, error)

    def test_a_put_that_is_stopped_leaves_nothing(self):
        for stop in signal.SIGINT, signal.SIGTERM, signal.SIGKILL:
            client = self.start("put", "--server", self.uri, "-", "good", stdin=subprocess.PIPE)
            client.stdin.write(bytes(9 * MIB))
            client.stdin.flush()
            client.send_signal(stop)
            client.wait(30)
            client.stdin.close()
            self.assertEqual(client.returncode, -stop)
            self.check_unharmed()

    def test_a_file_size_limit(self):
        self.big()
        limited = f'ulimit -f {150 * MIB // 512}; exec "$@"'  # Above the arena, which is a file.
        done = subprocess.run(["sh", "-c", limited, "sh", WEFT, "get", "--server", self.uri, "big",
                               self.directory / "limited"], capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 8, done.stderr)
        self.assertIn("File too large", done.stderr)
        self.assertEqual(done.stderr.count("\n"), 1)
        self.assertFalse((self.directory / "limited").exists())
        self.check_nothing_unfinished()

    def big(self):
        with open(self.root / "big", "wb") as file:
            file.truncate(200 * MIB)

    # Returns once the transfer has its file open, which has no name yet: only then a stop can leave
    # anything. A slow build takes seconds until then.
    def await_open_below(self, directory, client):
        end = time.monotonic() + 60
        while client.poll() is None:
            for fd in pathlib.Path(f"/proc/{client.pid}/fd").glob("*"):
                try:
                    if os.readlink(fd).startswith(f"{directory}/"):
                        return
                except FileNotFoundError:
                    pass
            self.assertLess(time.monotonic(), end, "the transfer does not begin")
            time.sleep(0.005)

    def start(self, *command, **options):
        client = subprocess.Popen([WEFT, *map(str, command)], stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, **options)
        self.addCleanup(lambda: client.poll() is None and client.kill())
        self.addCleanup(client.stdout.close)
        self.addCleanup(client.stderr.close)
        return client


class Usage(BadInput):
    def test_wrong_usage_is_one_line_that_names_the_help(self):
        uri = self.uri
        for arguments, word in (
                ([], "subcommand"), (["nonsense"], "nonsense"), (["put"], "--server"),
                (["put", "--server", uri], "file"), (["get", "--server", uri], "name"),
                (["put", "--server", uri, "a", "b", "c"], "c"), (["ls", "--bogus"], "--"),
                (["perf", "nonsense"], "nonsense"), (["perf", "rpc", "--size", "-1"], "--size"),
                (["perf", "rpc", "--size", "1TiB"], "--size"),
                (["perf", "rpc", "--size", "99999999999999999999"], "--size"),
                (["perf", "rpc", "--seconds", "-1"], "--seconds"),
                (["perf", "rpc", "--seconds", "nan"], "--seconds"),
                (["perf", "rpc", "--inflight", "0"], "--inflight"),
                (["perf", "serve"], "--listen"), (["ping", uri, "--count", "0"], "--count"),
                (["ping", uri, "--timeout", "-1s"], "--timeout"),
                (["ping", uri, "--timeout", "1e30s"], "--timeout"),
                (["get", "--server", uri, "good", "x", "--extent", "-1+5"], "--extent"),
                (["get", "--server", uri, "good", "x", "--extent", "0+0"], "--extent"),
                (["get", "--server", uri, "good", "x", "--extent", f"{2**64}+1"], "--extent"),
                (["show", "k"], ""), (["set", "k", "v"], "--group")):
            code, out, error = weft(*arguments)
            self.assertEqual((code, out, error.count("\n")), (64, "", 1), f"{arguments}: {error}")
            self.assertIn(word, error)
            self.assertIn("--help", error)
            code, out, _ = weft(*arguments, "--json")
            told = json.loads(out)["error"]
            self.assertEqual((code, told["code"], told["number"]), (64, "USAGE", 64))

    def test_a_bad_variable_is_named(self):
        for name, value in (("WEFT_WAIT", "sometimes"), ("WEFT_SPIN", "-1"), ("WEFT_CPU", "x"),
                            ("WEFT_TIMEOUT", "0"), ("WEFT_TIMEOUT", ""), ("WEFT_ARENA", "64MiB"),
                            ("WEFT_PEERS", "65537"), ("WEFT_VERBS_WITHOUT", "list"), ("WEFT_WAITING", "1048575"), ("WEFT_CALLS", "0"),
                            ("WEFT_STRICT", "yes")):
            environment = {**os.environ, name: value}
            self.refused(3, [name], "ls", "--server", self.uri, env=environment)
        environment = {**os.environ, "WEFT_NONSENSE": "1", "WEFT_STRICT": "1"}
        self.refused(3, ["WEFT_NONSENSE", "WEFT_STRICT"], "ls", "--server", self.uri, env=environment)

    def test_a_foreign_variable_is_one_warning(self):
        """Variables of a cluster's services and of modules, and a mistyped one."""
        environment = {**os.environ, "WEFT_SERVICE_HOST": "10.0.0.1", "WEFT_ROOT": "/opt/weft",
                       "WEFT_TIMOUT": "5"}
        code, _, error = weft("ls", "--server", self.uri, env=environment)
        self.assertEqual(code, 0, error)
        told = [line for line in error.splitlines() if "WEFT_" in line]
        self.assertEqual(len(told), 1, error)
        for word in ("WEFT_SERVICE_HOST", "WEFT_ROOT", "WEFT_TIMOUT (is WEFT_TIMEOUT meant?)"):
            self.assertIn(word, told[0])


class RawBytes(BadInput):
    """Garbage to a live server, below the protocol of the library."""

    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)

    def noise(self, count):
        return self.random.randbytes(count)

    def put_and_get(self):
        for uri in self.server.uris:
            source = self.file("more", self.noise(5 * MIB))
            self.ok("put", "--server", uri, source, "more")
            self.ok("get", "--server", uri, "more", self.directory / "back")
            self.assertEqual((self.directory / "back").read_bytes(), source.read_bytes())
            self.ok("rm", "--server", uri, "more")
        (self.directory / "back").unlink()
        self.check_unharmed()

    def open_descriptors(self):
        return len(os.listdir(f"/proc/{self.server.process.pid}/fd"))

    def check_descriptors(self, before):
        deadline = time.monotonic() + PATIENCE
        while self.open_descriptors() > before:
            self.assertLess(time.monotonic(), deadline, "descriptors leak")
            time.sleep(0.05)

    def sm_socket(self):
        stranger = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stranger.settimeout(5)
        stranger.connect(str(self.runtime / "weft" / (self.uri.removeprefix("sm://") + ".sock")))
        return stranger

    def greetings(self):
        magic = (0x6d736677).to_bytes(4, "little")  # src/na/sm/handshake.cc
        yield b"x"
        yield bytes(1)
        yield magic
        yield b"GET / HTTP/1.1\r\n\r\n"
        for version in 1, 255, 65535:
            yield magic + version.to_bytes(2, "little") + bytes(300)
        for _ in range(100):
            yield self.noise(self.random.randrange(1, 4000))
            yield magic + bytes(4) + self.noise(self.random.randrange(1, 400))
            yield magic + b"\0\0\1\0weft\0\0" + self.noise(self.random.randrange(1, 300))

    def test_garbage_into_the_socket_of_sm(self):
        self.put_and_get()
        before = self.open_descriptors()
        for greeting in self.greetings():
            with self.sm_socket() as stranger, contextlib.suppress(OSError):
                stranger.send(greeting)
                if self.random.random() < 0.3:
                    stranger.recv(4096)  # The reason, or the end of the connection.
        self.put_and_get()
        self.check_descriptors(before)

    def test_descriptors_that_nobody_asked_for_are_closed(self):
        self.put_and_get()
        before = self.open_descriptors()
        ends = os.pipe()
        rights = array.array("i", [ends[0]] * 64)
        for count in 1, 3, 4, 64:
            for greeting in list(self.greetings())[:30]:
                with self.sm_socket() as stranger, contextlib.suppress(OSError):
                    stranger.sendmsg([greeting], [(socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                                   rights[:count])])
        for end in ends:
            os.close(end)
        self.put_and_get()
        self.check_descriptors(before)

    def test_another_version_is_told_so_and_a_silent_one_is_let_go(self):
        hello = b"weft" + (9).to_bytes(2, "little") + bytes(2 + 16 + 8 + 2)
        with self.sm_socket() as stranger:
            stranger.send((0x6d736677).to_bytes(4, "little") + b"\0\0\1\0" + hello)
            answer = stranger.recv(4096)
            self.assertIn(b"wire version 9", answer)
        with contextlib.ExitStack() as silent:
            for _ in range(80):
                silent.enter_context(self.sm_socket())
            self.put_and_get()

    def ports(self):
        for uri in self.server.uris:
            if not uri.startswith("sm"):
                yield int(uri.rsplit(":", 1)[1])

    def tcp_socket(self, port):
        return socket.create_connection(("127.0.0.1", port), timeout=5)

    def test_garbage_to_the_ports_of_tcp_and_ofi_tcp(self):
        for port in self.ports():
            with self.subTest(port=port):
                self.garbage_to(port)

    def garbage_to(self, port):
        self.put_and_get()
        before = self.open_descriptors()
        letters = [b"x", b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", bytes(4096), b"\xff" * 4096,
                   b"weft" * 100]
        letters += [self.noise(self.random.randrange(1, 70_000)) for _ in range(60)]
        for letter in letters:
            with self.tcp_socket(port) as stranger, contextlib.suppress(OSError):
                stranger.sendall(letter)
                if self.random.random() < 0.3:
                    stranger.shutdown(socket.SHUT_WR)
                    stranger.settimeout(0.2)
                    stranger.recv(4096)
        self.put_and_get()
        self.check_descriptors(before)

    def test_silent_and_half_said_connections_to_the_ports_of_tcp_and_ofi_tcp(self):
        with contextlib.ExitStack() as silent:
            for port in self.ports():
                for i in range(60):
                    stranger = silent.enter_context(self.tcp_socket(port))
                    if i % 2:
                        stranger.sendall(self.noise(3))
            self.put_and_get()
        self.put_and_get()


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + [argument for argument in sys.argv[2:]
                                        if argument != "--sanitized"])
