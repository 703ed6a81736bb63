#!/usr/bin/env python3
"""Runs shell commands of tests in either of two connected guests. Uses the second network of the guests,
which works while a test disturbs the first one.

    tools/softroce/control.py ADDRESS                  serves commands at the address
    tools/softroce/control.py --tell ADDRESS COMMAND   sends one command

A connection carries one shell command, up to the client's shutdown of writing. The reply is the exit status
on a line, then the output. The guests' networks lead nowhere else and carry nothing but tests.
"""
import socket
import socketserver
import subprocess
import sys

PORT = 7077
SECONDS_MAX = 60


class Command(socketserver.StreamRequestHandler):
    def handle(self):
        words = self.rfile.read().decode()
        try:
            done = subprocess.run(["bash", "-c", words], stdin=subprocess.DEVNULL, text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  timeout=SECONDS_MAX, check=False)
            answer = f"{done.returncode}\n{done.stdout}"
        except subprocess.TimeoutExpired:
            answer = f"124\nnot done within {SECONDS_MAX} s: {words}"
        self.wfile.write(answer.encode())


class Server(socketserver.ThreadingTCPServer):
    allow_reuse_address = True
    daemon_threads = True


def send_command(address, words):
    """The command's exit status, and its output."""
    with socket.create_connection((address, PORT), timeout=SECONDS_MAX + 10) as talk:
        talk.sendall(words.encode())
        talk.shutdown(socket.SHUT_WR)
        answer = b"".join(iter(lambda: talk.recv(4096), b"")).decode()
    status, _, wrote = answer.partition("\n")
    return int(status), wrote


def main():
    if sys.argv[1] != "--tell":
        Server((sys.argv[1], PORT), Command).serve_forever()
    try:
        status, wrote = send_command(*sys.argv[2:4])
    except (OSError, ValueError) as error:
        status, wrote = 69, f"control: no answer from {sys.argv[2]}: {error}\n"
    print(wrote, end="")
    return status


if __name__ == "__main__":
    sys.exit(main())
