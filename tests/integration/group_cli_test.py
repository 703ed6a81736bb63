#!/usr/bin/env python3
"""The group commands from outside: their output, their changes of the file, and their
errors.

    group_cli_test.py WEFT [--sanitized] [unittest arguments]
"""
import array
import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
import unittest

from storage_cli_test import OTHER_USER, PATIENCE, WEFT, StorageCase, weft


class GroupCase(StorageCase):
    def setUp(self):
        super().setUp()
        self.group = self.write_group(1, [{"rank": 0, "uris": ["sm://absent-0"]},
                                          {"rank": 3, "uris": ["sm://absent-3"], "incarnation": 1}])

    def write_group(self, epoch, members, name="store", file="group.json"):
        return self.file(file, json.dumps({"name": name, "epoch": epoch, "members": members}).encode())

    def view(self):
        return json.loads(self.group.read_text())

    def ranks(self):
        return [member["rank"] for member in self.view()["members"]]

    def run_ok(self, *command):
        return self.ok("group", command[0], "--group", self.group, *command[1:])

    def run_fails(self, code, sentence, *command):
        before = self.group.read_bytes() if self.group.exists() else None
        self.fails(code, sentence, "group", command[0], "--group", self.group, *command[1:])
        status, out, _ = weft("group", command[0], "--group", self.group, *command[1:], "--json")
        self.assertEqual(status, code)
        error = json.loads(out)["error"] if "--probe" not in command else {"number": code, "text": sentence}
        self.assertEqual(error["number"], code)
        self.assertIn(sentence, error["text"])
        self.assertEqual(self.group.read_bytes() if self.group.exists() else None, before)


class List(GroupCase):
    def test_members_as_text_and_as_json(self):
        self.assertEqual(self.run_ok("ls").splitlines(), [
            "group store, epoch 1, 2 members",
            "rank  incarnation  state   addresses",
            "0               0  active  sm://absent-0",
            "3               1  active  sm://absent-3"])
        self.assertEqual(json.loads(self.run_ok("ls", "--json")), {
            "name": "store", "epoch": 1, "members": [
                {"rank": 0, "incarnation": 0, "state": "active", "uris": ["sm://absent-0"]},
                {"rank": 3, "incarnation": 1, "state": "active", "uris": ["sm://absent-3"]}]})
        self.run_ok("drain", "3")
        self.assertIn("3               1  draining  sm://absent-3", self.run_ok("ls"))

    def test_who_answers(self):
        live = [self.serve(root=self.file(f"root{i}/x", b"").parent).uris[0] for i in range(3)]
        self.group = self.write_group(4, [{"rank": 10 + i, "uris": [f"sm://absent-{i}", uri]}
                                          for i, uri in enumerate(live)])
        lines = self.run_ok("ls", "--probe").splitlines()
        self.assertEqual(lines[1].split(), ["rank", "incarnation", "state", "answer", "addresses"])
        members = json.loads(self.run_ok("ls", "--probe", "--json"))["members"]
        self.assertEqual([member["error"] for member in members], 3 * [None])
        self.assertTrue(all(member["answered_ns"] > 0 for member in members))

    def test_who_does_not_answer_is_named_and_holds_up_nobody(self):
        live = self.serve().uris[0]
        self.group = self.write_group(4, [{"rank": 1, "uris": [live]}] +
                                      [{"rank": 2 + i, "uris": [f"sm://absent-{i}"]} for i in range(3)])
        self.run_fails(14, "rank 2: nothing listens at sm://absent-0", "ls", "--probe")
        _, out, _ = weft("group", "ls", "--group", self.group, "--probe")
        self.assertEqual([line.split()[3] for line in out.splitlines()[3:]], 3 * ["UNAVAILABLE"])
        _, out, _ = weft("group", "ls", "--group", self.group, "--probe", "--json")
        members = json.loads(out)["members"]
        self.assertIsNone(members[0]["error"])
        self.assertEqual([member["error"]["code"] for member in members[1:]], 3 * ["UNAVAILABLE"])
        self.assertEqual([member["answered_ns"] for member in members[1:]], 3 * [None])

    def test_those_who_stand_still_cost_their_time_once(self):
        servers = [self.serve(root=self.file(f"root{i}/x", b"").parent) for i in range(4)]
        self.group = self.write_group(1, [{"rank": i, "uris": server.uris}
                                          for i, server in enumerate(servers)])
        for server in servers[1:]:
            server.process.send_signal(signal.SIGSTOP)
        begin = time.monotonic()
        self.run_fails(14, "rank 1", "ls", "--probe", "--timeout", "1500ms")
        self.assertLess(time.monotonic() - begin, 2 * 3 * 1.5)  # Twice: as text, as JSON.

    def test_more_members_than_are_asked_at_a_time(self):
        port = self.serve(listen=["tcp://0.0.0.0:0"]).uris[0].rpartition(":")[2]
        self.group = self.write_group(1, [{"rank": rank, "uris": [f"tcp://127.0.{rank // 200}.{1 + rank % 200}:{port}"]}
                                          for rank in range(600)])
        members = json.loads(self.run_ok("ls", "--probe", "--json"))["members"]
        self.assertEqual(sum(member["error"] is None for member in members), 600)


class Change(GroupCase):
    def test_members_come_drain_and_go(self):
        self.assertEqual(self.run_ok("admit", "--rank", "7", "--uri", "tcp://h:1", "--uri", "sm://seven"),
                         "epoch 2: rank 7 incarnation 2 joined tcp://h:1 sm://seven\n")
        self.assertEqual(self.run_ok("drain", "7", "0"),
                         "epoch 3: rank 0 incarnation 0 draining sm://absent-0\n"
                         "epoch 3: rank 7 incarnation 2 draining tcp://h:1 sm://seven\n")
        self.assertEqual(self.run_ok("drain", "0"), "epoch 3: nothing to change\n")
        self.assertEqual(self.run_ok("admit", "--rank", "7", "--uri", "sm://new", "--incarnation", "9"),
                         "epoch 4: rank 7 incarnation 9 restarted sm://new\n")
        self.assertEqual(json.loads(self.run_ok("evict", "0", "3", "0", "--json")), {
            "name": "store", "epoch": 5, "members": 1, "changes": [
                {"epoch": 5, "rank": 0, "incarnation": 0, "cause": "left", "uris": []},
                {"epoch": 5, "rank": 3, "incarnation": 1, "cause": "left", "uris": []}]})
        self.assertEqual(self.view(), {"name": "store", "epoch": 5, "members": [
            {"rank": 7, "uris": ["sm://new"], "incarnation": 9}]})

    def test_what_can_not_be_changed(self):
        self.run_fails(5, "no rank 9 in epoch 1", "evict", "0", "9")
        self.run_fails(5, "no rank 9 in epoch 1", "drain", "0", "9")
        self.run_fails(9, "would have no member left", "evict", "0", "3")
        self.run_fails(6, "rank 3 already, in incarnation 1", "admit", "--rank", "3", "--uri", "sm://x")
        self.run_fails(3, "'nonsense'", "admit", "--rank", "4", "--uri", "nonsense")
        self.group = self.write_group(2**64 - 1, [{"rank": i, "uris": [f"sm://x-{i}"]} for i in range(2)])
        self.run_fails(8, "no epoch after", "evict", "0")

    def test_files_that_are_none(self):
        self.group = self.file("bad.json", b"{")
        for command in (["ls"], ["watch"], ["evict", "0"], ["drain", "0"],
                        ["admit", "--rank", "9", "--uri", "sm://x"]):
            self.run_fails(3, "bad.json", *command)
        self.group.unlink()
        for command in (["ls"], ["watch"], ["evict", "0"], ["drain", "0"],
                        ["admit", "--rank", "9", "--uri", "sm://x"]):
            self.run_fails(5, "bad.json", *command)

    @unittest.skipUnless(os.geteuid() == 0, "only root becomes another user")
    def test_who_may_not_write(self):
        self.directory.chmod(0o755)
        self.group.chmod(0o644)
        status, _, error = weft("group", "evict", "--group", self.group, "0", user=OTHER_USER, group=OTHER_USER,
                                extra_groups=[])
        self.assertEqual(status, 7, error)
        self.assertIn("Permission denied", error)
        self.assertEqual(self.ranks(), [0, 3])

    def test_commands_at_the_same_time_lose_no_change(self):
        commands = [subprocess.Popen([WEFT, "group", "admit", "--group", self.group, "--rank", str(rank),
                                      "--uri", f"sm://x-{rank}"], stdout=subprocess.DEVNULL)
                    for rank in range(100, 120)]
        self.assertEqual([command.wait(PATIENCE) for command in commands], 20 * [0])
        self.assertEqual(self.ranks(), [0, 3, *range(100, 120)])
        self.assertEqual(self.view()["epoch"], 21)

    def test_wrong_usage_is_64(self):
        group = ["--group", self.group]
        for arguments in ([], ["nothing"], ["ls"], ["watch"], ["evict", *group], ["evict", "1"],
                          ["evict", *group, ""], ["evict", *group, "-1"], ["evict", *group, "x"],
                          ["drain", *group, str(2**32)], ["admit", *group, "--rank", "1"],
                          ["admit", *group, "--uri", "sm://x"], ["watch", *group, "--until-epoch", ""],
                          ["admit", *group, "--rank", "", "--uri", "sm://x"],
                          ["ls", *group, "--timeout", "1s"],
                          ["ls", *group, "--probe", "--timeout", "soon"]):
            status, _, error = weft("group", *arguments)
            self.assertEqual(status, 64, arguments)
            self.assertEqual(error.count("\n"), 1, error)
        self.assertIn("there is no command 'group nothing'", weft("group", "nothing")[2])
        self.assertIn("see 'weft group evict --help'", weft("group", "evict")[2])


class Watch(GroupCase):
    def watch(self, *more):
        watch = subprocess.Popen([WEFT, "group", "watch", "--group", self.group, *more], text=True,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.addCleanup(watch.communicate)
        self.addCleanup(watch.kill)
        return watch

    def test_each_change_is_a_line(self):
        watch = self.watch("--until-epoch", "4")
        self.assertEqual(watch.stdout.readline(), "epoch 1: group store, 2 members\n")
        lines = [self.run_ok("admit", "--rank", "5", "--uri", "sm://x"), self.run_ok("drain", "5")]
        self.assertEqual([watch.stdout.readline() for _ in lines], lines)
        lines = self.run_ok("evict", "5", "0")
        out, error = watch.communicate(timeout=PATIENCE)
        self.assertEqual((watch.returncode, out, error), (0, lines, ""))

    def test_each_change_is_an_object(self):
        watch = self.watch("--json", "--until-epoch", "2")
        self.assertEqual(json.loads(watch.stdout.readline()), {"name": "store", "epoch": 1, "members": 2})
        self.write_group(2, [{"rank": 0, "uris": ["sm://elsewhere"], "draining": True}])
        out, _ = watch.communicate(timeout=PATIENCE)
        self.assertEqual([json.loads(line) for line in out.splitlines()], [
            {"epoch": 2, "rank": 0, "incarnation": 0, "cause": "moved", "uris": ["sm://elsewhere"]},
            {"epoch": 2, "rank": 0, "incarnation": 0, "cause": "draining", "uris": ["sm://elsewhere"]},
            {"epoch": 2, "rank": 3, "incarnation": 1, "cause": "left", "uris": []}])
        self.assertEqual(watch.returncode, 0)

    def test_an_epoch_that_is_there_ends_it_at_once(self):
        self.assertEqual(self.run_ok("watch", "--until-epoch", "1"), "epoch 1: group store, 2 members\n")

    def test_signals_end_it_cleanly(self):
        for sign in signal.SIGINT, signal.SIGTERM:
            watch = self.watch()
            watch.stdout.readline()
            watch.send_signal(sign)
            out, error = watch.communicate(timeout=PATIENCE)
            self.assertEqual((watch.returncode, out, error), (0, "", ""))

    def test_a_second_signal_does_not_wait_for_a_reader(self):
        self.group = self.write_group(1, [{"rank": rank, "uris": [f"sm://x-{rank}"]} for rank in range(4000)])
        watch = self.watch()
        watch.stdout.readline()
        self.run_ok("drain", *range(4000))
        deadline = time.monotonic() + PATIENCE
        while watch.poll() is None:  # With more output than the pipe takes.
            self.assertLess(time.monotonic(), deadline)
            waiting = array.array("i", [0])
            fcntl.ioctl(watch.stdout.fileno(), termios.FIONREAD, waiting)
            if waiting[0] >= 60000:
                watch.send_signal(signal.SIGTERM)
            time.sleep(0.01)
        self.assertEqual(watch.returncode, -signal.SIGTERM)

    def test_trouble_is_told_and_that_it_is_over(self):
        watch = self.watch("--until-epoch", "2")
        watch.stdout.readline()
        good = self.group.read_bytes()
        self.group.write_bytes(good[:20])
        self.assertIn("INVALID_ARGUMENT", watch.stderr.readline())
        self.group.write_bytes(good)
        self.assertIn("is valid again", watch.stderr.readline())
        self.group.unlink()
        self.assertIn("NOT_FOUND", watch.stderr.readline())
        self.write_group(2, [{"rank": 0, "uris": ["sm://absent-0"]}])
        out, error = watch.communicate(timeout=PATIENCE)
        self.assertEqual((watch.returncode, out), (0, "epoch 2: rank 3 incarnation 1 left\n"))
        self.assertIn("is valid again", error)

    def test_a_reader_that_goes_away_ends_it(self):
        watch = self.watch()
        watch.stdout.readline()
        watch.stdout.close()
        self.run_ok("drain", "0")
        self.assertNotEqual(watch.wait(PATIENCE), 0)
        self.assertIn("can't write to standard output", watch.stderr.read())


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + [argument for argument in sys.argv[2:]
                                        if argument != "--sanitized"])
