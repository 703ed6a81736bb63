"""Servers of a group, each a process of its own: for the tests of examples."""
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import time

LIMIT = 60


def check(holds, reason):
    if not holds:
        raise AssertionError(reason)


class Servers:
    """COMMAND(group, rank) starts a server, which prints a line when it listens."""

    def __init__(self, directory, count, command):
        self.directory = pathlib.Path(directory)
        self.group = self.directory / "group.json"
        self.command = command
        self.processes = {}
        members = [{"rank": rank, "uris": [f"sm://member-{rank}"]} for rank in range(count)]
        self.group.write_text(json.dumps({"name": "example", "epoch": 1, "members": members}))
        for rank in range(count):
            self.start(rank)

    def start(self, rank):
        process = subprocess.Popen([str(word) for word in self.command(self.group, rank)],
                                   stdout=subprocess.PIPE, text=True)
        self.processes[rank] = process
        said = process.stdout.readline()
        check(said == f"rank {rank} is there\n", f"server {rank} printed {said!r}")

    def kill(self, rank):
        self.processes[rank].kill()
        self.processes[rank].wait()

    def end(self):
        """Sends SIGTERM to the running servers; returns their exit statuses."""
        running = [process for process in self.processes.values() if process.poll() is None]
        for process in running:
            process.terminate()
        return [process.wait(timeout=LIMIT) for process in running]


def run(*command):
    """Runs the command; returns its exit status, its output and its duration."""
    begin = time.monotonic()
    done = subprocess.run([str(word) for word in command], text=True, capture_output=True,
                          timeout=LIMIT)
    return done.returncode, done.stdout + done.stderr, time.monotonic() - begin


@contextlib.contextmanager
def served(count, command):
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory
        servers = Servers(directory, count, command)
        try:
            yield servers
            check(set(servers.end()) <= {0}, "a server exited with a failure")
        finally:
            for process in servers.processes.values():
                if process.poll() is None:
                    process.kill()
                    process.wait()
