"""The command from outside: exit statuses, JSON, error texts.  cli_test.py WEFT [unittest options]"""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

WEFT = sys.argv.pop(1)

PERF_FIELDS = ["metric", "transport", "size", "inflight", "seconds", "count", "p50_ns", "p99_ns",
               "p999_ns", "mean_ns", "rate_per_s", "mib_per_s", "floor_ns", "floor_drift",
               "version"]


def weft(*arguments, timeout=60):
    return subprocess.run([WEFT, *arguments], capture_output=True, text=True, timeout=timeout)


def name():
    return f"sm://cli-test-{os.getpid()}-{time.monotonic_ns()}"


class Server:
    """`weft perf serve`, also a server for ping and info."""

    def __init__(self, uri, *arguments):
        self.process = subprocess.Popen([WEFT, "perf", "serve", "--listen", uri, *arguments],
                                        stdout=subprocess.PIPE, text=True)
        self.uri = self.process.stdout.readline().split()[1]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
        self.process.wait(10)
        self.process.stdout.close()


def usable_transports():
    found = json.loads(weft("info", "--json").stdout)["transports"]
    return [transport["scheme"] for transport in found if transport["usable"]]


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
        return [int(child) for child in file.read().split()]


def is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Usage(unittest.TestCase):
    def test_wrong_usage_exits_64(self):
        for arguments in ([], ["nothing"], ["perf"], ["perf", "nonsense"], ["ping"],
                          ["perf", "rpc", "--size", "x"], ["perf", "rpc", "--spin", "--block"],
                          ["perf", "serve"], ["ping", "sm://x", "--interval", "soon"],
                          ["sim", "--scenario", "nonsense"], ["sim", "--nodes", "1"],
                          ["group"], ["group", "nonsense"]):
            done = weft(*arguments)
            self.assertEqual(done.returncode, 64, arguments)
            self.assertTrue(done.stderr or done.stdout, arguments)

    def test_a_number_out_of_its_range_is_refused_with_the_range(self):
        ping, group = ("ping", "sm://x"), ("--group", "no-file")
        perf, sim = ("perf", "rpc"), ("sim",)
        rank_over = str(2**32 - 1)
        for command, option, wrong, words in (
                (ping, "--count", ("0", "-1", "1000000001", "x", "1.5"), "1 to 1000000000"),
                (ping, "--interval", ("-1s", "25h", "soon", "1e30s"), "0 ns to"),
                (ping, "--timeout", ("0", "0s", "1ns", "25h", "nan", "inf"), "1 us to"),
                (("group", "ls", *group, "--probe"), "--timeout", ("0s", "-1s"), "1 us to"),
                (("group", "watch", *group), "--until-epoch", ("0", "-1", "x"), "from 1 to"),
                (("group", "tree", *group), "--root", ("-1", rank_over), "0 to 4294967294"),
                (("group", "tree", *group), "--fanout", ("1", "65", "0"), "2 to 64"),
                (("group", "evict", *group), "", (rank_over, "x"), "0 to 4294967294"),
                (("group", "admit", *group, "--uri", "sm://a"), "--rank", ("-1", rank_over),
                 "0 to 4294967294"),
                (("group", "admit", *group, "--uri", "sm://a", "--rank", "1"), "--incarnation",
                 ("0", "-1"), "from 1 to"),
                (("serve", "--root", ".", "--listen", "sm://x", *group), "--rank",
                 ("-1", rank_over), "0 to 4294967294"),
                (perf, "--size", ("-1", "1TiB", "4XB", "1e3", "99999999999999999999GiB"),
                 "0 to 4294967296"),
                (perf, "--reply-size", ("-1", "x"), "0 to 4294967296"),
                (perf, "--beside-size", ("0", "-1"), "1 to 4294967296"),
                (perf, "--inflight", ("0", "65537", "-1"), "1 to 65536"),
                (perf, "--seconds", ("0", "-1", "nan", "inf", "86401", "x"), "0.001 to 86400"),
                (perf, "--ranks", ("0", "257"), "1 to 256"),
                (perf, "--contexts", ("-1", "65"), "0 to 64"),
                (perf, "--clients", ("0", "257"), "1 to 256"),
                (perf, "--work", ("-1", "100001", "nan"), "0 to 100000"),
                (("serve", "--root", ".", "--listen", "sm://x"), "--contexts", ("-1", "65"), "0 to 64"),
                (perf, "--cpus", ("0,-1", "0,8192"), "0 to 8191"),
                (sim, "--seeds", ("0", "-1", "x"), "from 1 to"),
                (sim, "--first-seed", ("-1", "x"), "from 0 to"),
                (sim, "--nodes", ("1", "1048577"), "2 to 1048576"),
                (sim, "--jobs", ("-1", "1025"), "0 to 1024")):
            for value in wrong:
                given = [f"{option}={value}"] if option else [value]
                done = weft(*command, *given)
                told = f"{command} {given}: {done.stderr}"
                self.assertEqual((done.returncode, done.stdout), (64, ""), told)
                self.assertEqual(done.stderr.count("\n"), 1, told)
                self.assertIn(option or "rank", done.stderr, told)
                self.assertIn(words, done.stderr, told)

    def test_an_empty_file_is_wrong_usage(self):
        for command, name in ((("group", "ls", "--group", ""), "--group"),
                              (("set", "--group", "", "k", "v"), "--group"),
                              (("show", "--group", "", "k"), "--group"),
                              (("put", "--server", "sm://x", ""), "file"),
                              (("perf", "--suite", "rdma", "--report", ""), "--report")):
            done = weft(*command)
            self.assertEqual(done.returncode, 64, f"{command}: {done.stderr}")
            self.assertIn(f"{name}: is empty", done.stderr)

    def test_help_and_version_exit_0(self):
        self.assertEqual(weft("--help").returncode, 0)
        for command in ("info", "ping", "perf"):
            done = weft(command, "--help")
            self.assertEqual(done.returncode, 0)
            self.assertIn("Example", done.stdout)
        self.assertRegex(weft("--version").stdout, r"^weft \d+\.\d+\.\d+\n$")

    def test_every_option_is_in_the_documentation_and_the_other_way_round(self):
        page = pathlib.Path(__file__).resolve().parents[2] / "docs/cli.md"
        text = page.read_text(encoding="utf-8")
        listed = set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", text)) - {"--smoke"}  # Options of tools/bench.py.
        there = set()
        left = [()]
        while left:
            command = left.pop()
            said = weft(*command, "--help").stdout
            self.assertIn(" ".join(["weft", *command]), text)
            there |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]*", re.sub(r"(?m)^(?! *-).*$", "", said)))
            left += [(*command, below) for below in re.findall(
                r"^  (\w+) ", said.partition("Subcommands:")[2], re.M)]
        self.assertEqual(there - {"--version"}, listed)

    def test_every_number_has_a_range_and_what_is_none_is_refused(self):
        judged = 0
        left = [()]
        while left:
            command = left.pop()
            said = weft(*command, "--help").stdout
            left += [(*command, below) for below in re.findall(
                r"^  (\w+) ", said.partition("Subcommands:")[2], re.M)]
            for option, kind in re.findall(r"^  (\S+) ((?:UINT|INT|FLOAT)\S*.*)$", said, re.M):
                self.assertRegex(kind, r"in \[[\d.]+ - [\d.]+\]", f"{command} {option}")
                if not option.startswith("--"):
                    continue
                for bad in ("-1", "1e23", "99999999999999999999999", "0x10", "", " 1", "1 ", "nan"):
                    if ("SIZE" in kind or "FLOAT" in kind) and bad in ("0x10", " 1", "1 "):
                        continue
                    metric = ["rpc"] if command == ("perf",) else []
                    done = weft(*command, *metric, f"{option}={bad}")
                    self.assertEqual(done.returncode, 64, f"{command} {option}={bad}")
                    self.assertIn(option, done.stderr)
                    judged += 1
        self.assertGreater(judged, 80)

    def test_a_program_that_is_not_built_is_named_with_the_remedy(self):
        with tempfile.TemporaryDirectory() as directory:
            alone = pathlib.Path(directory).resolve() / "bin/weft"
            alone.parent.mkdir()
            shutil.copy2(WEFT, alone)
            done = subprocess.run([alone, "perf", "rpc", "--json"], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 12)
            program = alone.parents[1] / "libexec/weft/weft-perf"
            text = f"'weft perf' is the program {program}, which is not there: `make build` builds it, and the package weft contains it"
            self.assertEqual(done.stderr, f"weft: UNIMPLEMENTED: {text}\n")
            self.assertEqual(json.loads(done.stdout)["error"]["text"], text)

    def test_help_that_is_not_written_is_an_error(self):
        for arguments in (["--help"], ["--version"], ["perf", "--help"]):
            with open("/dev/full", "w", encoding="ascii") as full:
                done = subprocess.run([WEFT, *arguments], stdout=full, stderr=subprocess.PIPE,
                                      text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 8, done.stderr)
            self.assertIn("standard output", done.stderr)

    def test_a_command_ends_at_the_first_line_that_is_not_written(self):
        with tempfile.TemporaryDirectory(prefix="weft-test-") as directory:
            group = pathlib.Path(directory, "group.json")
            group.write_text(json.dumps({"name": "g", "epoch": 1, "members": [
                {"rank": 0, "incarnation": 1, "uris": ["sm://unserved"]}]}), encoding="ascii")
            serve = "serve", "--root", directory, "--listen"
            with Server(name()) as server:
                for command in ((*serve, name()), (*serve, name(), "--json"),
                                ("perf", "serve", "--listen", name()),
                                ("perf", "serve", "--bare", "--listen", "tcp://127.0.0.1:0"),
                                ("group", "watch", "--group", str(group)),
                                ("group", "watch", "--json", "--group", str(group)),
                                ("ping", server.uri, "--interval", "3600s")):
                    for kind, status, word in (("full", 8, "No space left"),
                                               ("closed pipe", 9, "Broken pipe"),
                                               ("closed", 9, "Bad file descriptor")):
                        done = self.run_with_output(kind, [WEFT, *command])
                        self.assertEqual(done.returncode, status, f"{command} {kind}: {done.stderr}")
                        self.assertIn(f"can't write to standard output: {word}", done.stderr)
                        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def run_with_output(self, kind, command):
        """Runs it with a standard output that fails."""
        if kind == "closed":
            return subprocess.run(["sh", "-c", 'exec "$@" >&-', "sh", *command], text=True,
                                  stderr=subprocess.PIPE, timeout=60, check=False)
        if kind == "full":
            output = os.open("/dev/full", os.O_WRONLY)
        else:
            read, output = os.pipe()
            os.close(read)
        try:
            return subprocess.run(command, stdout=output, stderr=subprocess.PIPE, text=True,
                                  timeout=60, check=False)
        finally:
            os.close(output)

    def test_a_pipe_that_does_not_block_is_waited_for(self):
        read, write = os.pipe()
        os.set_blocking(write, False)
        with self.assertRaises(BlockingIOError):
            while True:  # Until the pipe is full.
                os.write(write, bytes(4096))
        with subprocess.Popen([WEFT, "perf", "--help"], stdout=write,
                              stderr=subprocess.PIPE) as process:
            # The pipe is full before the process writes: its lines arrive once there is room.
            os.close(write)
            with self.assertRaises(subprocess.TimeoutExpired):
                process.wait(0.3)
            with open(read, encoding="utf-8") as output:
                self.assertIn("Example", output.read())
            self.assertEqual(process.wait(60), 0, process.stderr.read())

    def test_json_of_what_a_peer_wrote_is_ascii(self):
        done = subprocess.run([WEFT, "ping", "x\u202e\u009b\u2028", "--json"], capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 3)
        self.assertTrue(done.stdout.isascii() and done.stderr.isascii(), done)
        self.assertIn("\\u{202e}", json.loads(done.stdout)["error"]["text"])

    def test_a_bad_address_is_one_sentence(self):
        for uri, status in (("nonsense", 3), ("ofi+shm://x", 3),
                            ("ofi+verbs://h:1", 14), ("verbs://h:1", 14)):
            done = weft("ping", uri)
            self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual(done.stderr.count("\n"), 1)

    def test_libfabric_with_buffers_too_small_is_refused_with_the_remedy(self):
        if "ofi+tcp" not in usable_transports():
            return
        done = subprocess.run([WEFT, "perf", "serve", "--listen", "ofi+tcp://127.0.0.1:0"],
                              env={**os.environ, "FI_OFI_RXM_BUFFER_SIZE": "256"},
                              capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 9, done.stderr)
        self.assertIn("raise FI_OFI_RXM_BUFFER_SIZE", done.stderr)

    def test_libfabric_is_loaded_by_who_uses_it_only(self):
        transports = usable_transports()
        for uri in name(), "tcp://127.0.0.1:0", "ofi+tcp://127.0.0.1:0":
            transport = uri.split(":")[0]
            if transport not in transports:
                continue
            with Server(uri) as server:
                done = subprocess.run([WEFT, "ping", server.uri], capture_output=True, text=True,
                                      env={**os.environ, "LD_DEBUG": "files"}, timeout=60)
                self.assertEqual(done.returncode, 0, done.stderr)
                loaded = "calling init: " in done.stderr and "libfabric" in done.stderr
                self.assertEqual(loaded, transport.startswith("ofi"), done.stderr)

    def test_a_reader_that_goes_away_is_no_signal(self):
        read, write = os.pipe()
        os.close(read)
        done = subprocess.run([WEFT, "info"], stdout=write, stderr=subprocess.DEVNULL, timeout=60)
        os.close(write)
        self.assertGreaterEqual(done.returncode, 0)


class Perf(unittest.TestCase):
    def check(self, *arguments):
        done = weft("perf", *arguments, "--seconds", "0.1", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        self.assertEqual(list(result), PERF_FIELDS)
        return result

    def test_calls(self):
        for metric in ("rpc", "proto", "na"):
            result = self.check(metric, "--size", "64")
            self.assertEqual((result["metric"], result["transport"], result["size"]),
                             (metric, "sm", 64))
            self.assertGreater(result["count"], 0)
            self.assertLessEqual(result["p50_ns"], result["p99_ns"])
            self.assertLessEqual(result["p99_ns"], result["p999_ns"])
            self.assertAlmostEqual(result["rate_per_s"] * 0.1, result["count"],
                                   delta=result["count"] * 0.02 + 1)
            self.assertIsNone(result["mib_per_s"])

    def test_sizes_inflight_and_wait_modes(self):
        self.check("rpc", "--size", "0")
        self.check("rpc", "--size", "4KiB", "--reply-size", "16", "--spin")
        self.check("rpc", "--inflight", "64", "--block")
        self.check("proto", "--size", "0", "--reply-size", "1000", "--inflight", "16")
        self.check("na", "--inflight", "64", "--size", "1000")

    def test_cpus_that_can_not_be_used_are_refused(self):
        allowed = sorted(os.sched_getaffinity(0))
        other = next(cpu for cpu in range(8191, -1, -1) if cpu not in allowed)
        for cpus in (f"{other},{allowed[0]}", f"{allowed[0]},{other}"):
            done = weft("perf", "rpc", "--cpus", cpus, "--seconds", "0.1")
            self.assertEqual((done.returncode, done.stdout), (3, ""), done.stderr)
            self.assertIn(f"cpu {other} can't be used", done.stderr)
        self.check("rpc", "--cpus", f"{allowed[0]},{allowed[-1]}")

    def test_transfers(self):
        for metric in ("put", "get"):
            for arguments in (["--size", "1MiB"], ["--size", "3"],
                              ["--size", "64KiB", "--memory", "private", "--inflight", "4"]):
                result = self.check(metric, *arguments)
                self.assertGreater(result["mib_per_s"], 0)
                self.assertGreater(result["floor_ns"], 0)

    def test_calls_beside_transfers(self):
        for transport in usable_transports():
            for kind in ("get", "put"):
                result = self.check("rpc", "--transport", transport, "--beside", kind,
                                    "--beside-size", "4MiB")
                self.assertGreater(result["count"], 0)
                self.assertGreater(result["mib_per_s"], 0)

    def test_a_call_larger_than_a_message_has_no_bare_floor(self):
        if "ofi+tcp" in usable_transports():
            result = self.check("rpc", "--transport", "ofi+tcp", "--size", "256KiB")
            self.assertIsNone(result["floor_ns"])

    def test_the_floor_alone(self):
        result = self.check("floor", "--size", "1MiB")
        self.assertGreater(result["mib_per_s"], 0)
        self.assertIsNone(result["count"])

    def test_every_usable_transport_carries_calls(self):
        for transport in usable_transports():
            result = self.check("rpc", "--transport", transport)
            self.assertEqual(result["transport"], transport)

    def test_contexts_are_those_that_the_server_reports(self):
        def contexts(*arguments):
            done = weft("perf", "rpc", *arguments, "--seconds", "0.1", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual(list(result), [*PERF_FIELDS, "contexts", "clients", "work_us"])
            return result["contexts"]
        usable = len(json.loads(weft("info", "--contexts", "0", "--json").stdout)["numa"]["contexts"])
        self.assertEqual(contexts("--contexts", "3"), 3)
        self.assertEqual(contexts("--contexts", "0"), usable)
        self.assertEqual(contexts("--work", "1"), 1)
        if "ofi+tcp" in usable_transports():  # Its addresses are of context 0.
            self.assertEqual(contexts("--transport", "ofi+tcp", "--contexts", "2"), 1)
        with Server(name(), "--contexts", "3") as server:
            self.assertEqual(contexts("--server", server.uri, "--clients", "2"), 3)
            text = weft("perf", "rpc", "--server", server.uri, "--clients", "2", "--seconds", "0.1")
            self.assertIn("3 contexts, 2 clients", text.stdout)
            for given in "1", "3":
                done = weft("perf", "rpc", "--server", server.uri, "--contexts", given)
                self.assertEqual((done.returncode, done.stdout), (64, ""), done.stderr)
                self.assertIn("weft perf serve", done.stderr)

    def test_a_broadcast_to_processes_and_back(self):
        for transport in "sm", "tcp":
            result = self.check("bcast", "--transport", transport, "--ranks", "3",
                                "--topology", "k-ary", "--fanout", "2")
            self.assertGreater(result["count"], 0)

    def test_a_server_that_vanishes_fails_the_run(self):
        with Server(name()) as server:
            client = subprocess.Popen([WEFT, "perf", "rpc", "--server", server.uri, "--json",
                                       "--seconds", "30", "--inflight", "8"],
                                      stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            time.sleep(1)
            server.process.kill()
            out, err = client.communicate(timeout=20)
        self.assertEqual(client.returncode, 14, err)
        self.assertIn("operations failed", err)
        self.assertEqual(json.loads(out)["error"]["code"], "UNAVAILABLE")

    def test_a_killed_client_takes_its_server_along(self):
        client = subprocess.Popen([WEFT, "perf", "rpc", "--seconds", "30"],
                                  stdout=subprocess.DEVNULL)
        try:
            children = []
            end = time.monotonic() + 10
            while not children and time.monotonic() < end:
                children = children_of(client.pid)
                time.sleep(0.02)
            self.assertTrue(children)
        finally:
            client.send_signal(signal.SIGKILL)
            client.wait()
        end = time.monotonic() + 8
        while any(is_alive(child) for child in children) and time.monotonic() < end:
            time.sleep(0.05)
        self.assertFalse([child for child in children if is_alive(child)])


class Ping(unittest.TestCase):
    def test_an_unserved_address_exits_14_within_3_s(self):
        for transport in usable_transports():
            nowhere = {"sm": name(), "unix": "unix:///tmp/weft-unserved"}
            uri = nowhere.get(transport, f"{transport}://127.0.0.1:1")
            start = time.monotonic()
            done = weft("ping", uri)
            self.assertEqual(done.returncode, 14, uri + done.stderr)
            # The library returns within 3 s; the rest is the start of a process on a busy machine.
            self.assertLess(time.monotonic() - start, 4, uri)

    def test_a_server_answers(self):
        with Server(name()) as server:
            done = weft("ping", server.uri, "--count", "3", "--interval", "10ms", "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            result = json.loads(done.stdout)
            self.assertEqual((result["sent"], result["lost"], result["error"]), (3, 0, None))
            self.assertIn("3 sent, 0 lost", weft("ping", server.uri, "--count", "3", "--interval",
                                                 "0s").stdout)


class Info(unittest.TestCase):
    def test_it_lists_and_tries_the_transports(self):
        done = weft("info", "--json")
        self.assertEqual(done.returncode, 0, done.stderr)
        result = json.loads(done.stdout)
        by_scheme = {transport["scheme"]: transport for transport in result["transports"]}
        for scheme in "sm", "tcp", "unix":  # These transports work on every machine.
            self.assertTrue(by_scheme[scheme]["usable"], by_scheme[scheme])
        for transport in result["transports"]:
            if transport["usable"]:
                self.assertGreater(transport["self_test"]["round_trip_ns"], 0)
                if transport["caps"]["rma"]:
                    self.assertGreater(transport["self_test"]["get_4096_ns"], 0)
        self.assertTrue(result["limits"])
        text = weft("info").stdout
        for scheme in by_scheme:
            self.assertIn(scheme, text)

    def test_it_shows_the_cpus_that_contexts_get(self):
        usable = sorted(os.sched_getaffinity(0))
        info = json.loads(weft("info", "--json").stdout)
        numa = info["numa"]
        cpus = next(limit["value"] for limit in info["limits"] if limit["name"] == "cpus")
        found = re.fullmatch(r"(\d+)(?:; the quota of the cgroup \(cpu\.max\): (\d+))?", cpus)
        self.assertEqual(int(found[1]), len(usable), cpus)
        self.assertEqual(len(numa["contexts"]), min(len(usable), int(found[2] or 64), 64))
        self.assertNotEqual(bool(numa["nodes"]), bool(numa["missing"]), numa)
        self.assertTrue(numa["suggested_cpus"])
        done = subprocess.run([WEFT, "info", "--contexts", "3", "--json"], capture_output=True, text=True,
                              timeout=60, env={**os.environ, "WEFT_CPUS": f"{usable[-1]},{usable[0]}"})
        cpus = [context["cpu"] for context in json.loads(done.stdout)["numa"]["contexts"]]
        self.assertEqual(cpus, [usable[-1], usable[0], usable[-1]])
        done = subprocess.run([WEFT, "info"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "WEFT_CONTEXTS": "5"})
        self.assertIn("numa nodes, and 5 contexts\n", done.stdout)
        self.assertIn("contexts 0-4: not bound", done.stdout)
        for wrong in (["--contexts", "65"], [name(), "--contexts", "2"]):
            self.assertNotEqual(weft("info", *wrong).returncode, 0)

    def test_one_address(self):
        with Server(name()) as server:
            result = json.loads(weft("info", server.uri, "--json").stdout)
            self.assertTrue(result["reachable"])
            self.assertGreater(result["round_trip_ns"], 0)
        self.assertEqual(weft("info", name()).returncode, 14)

    def test_a_bad_variable_is_named(self):
        done = subprocess.run([WEFT, "info"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "WEFT_WAIT": "sometimes"})
        self.assertEqual(done.returncode, 3)
        self.assertIn("WEFT_WAIT", done.stdout + done.stderr)

    def test_a_foreign_variable_is_told(self):
        done = subprocess.run([WEFT, "info", "--json"], capture_output=True, text=True, timeout=60,
                              env={**os.environ, "WEFT_ROOT": "/opt/weft"})
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("WEFT_ROOT", json.loads(done.stdout)["environment_warning"])


class New(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.place = pathlib.Path(place.name)

    def test_it_writes_the_files_that_it_names(self):
        made = self.place / "made"
        for directory in (made, self.place / "new"):
            made.mkdir(exist_ok=True)
            done = weft("new", str(directory), "--json")
            self.assertEqual(done.returncode, 0, done.stderr)
            names = json.loads(done.stdout)["files"]
            self.assertEqual(sorted(names), sorted(os.listdir(directory)))
            self.assertIn("CMakeLists.txt", names)
        self.assertIn("README.md", weft("new", str(self.place / "text")).stdout)

    def test_what_is_there_stays(self):
        (self.place / "mine").write_text("x", encoding="utf-8")
        for directory in (self.place, self.place / "mine"):
            done = weft("new", str(directory))
            self.assertEqual(done.returncode, 6, done.stderr)
            self.assertIn(f"'{directory}' exists", done.stderr)
        self.assertEqual(os.listdir(self.place), ["mine"])
        self.assertEqual(weft("new", str(self.place / "none/below")).returncode, 5)


if __name__ == "__main__":
    unittest.main(verbosity=2)
