#!/usr/bin/env python3
"""storage_client.py CLIENT WEFT: the example client stores an object at `weft serve` and checks it over each transport."""
import os
import pathlib
import subprocess
import sys
import tempfile

CLIENT, WEFT = sys.argv[1:]
TEXT = "one short text\n"


def main():
    with tempfile.TemporaryDirectory() as directory:
        os.environ["XDG_RUNTIME_DIR"] = directory  # The names of sm://.
        root = pathlib.Path(directory) / "root"
        root.mkdir()
        addresses = ("sm://store", f"unix://{directory}/store", "tcp://127.0.0.1:0")
        listen = [word for address in addresses for word in ("--listen", address)]
        with subprocess.Popen([WEFT, "serve", "--root", str(root), *listen],
                              stdout=subprocess.PIPE, text=True) as server:
            uris = [server.stdout.readline().removeprefix("listening on ").strip() for _ in addresses]
            try:
                for number, uri in enumerate(uris):
                    done = subprocess.run([CLIENT, uri, f"object-{number}", TEXT], text=True, check=True,
                                          capture_output=True, timeout=60)
                    assert done.stdout == f"put: {len(TEXT)} bytes as object-{number}\nget: the same bytes\n", done.stdout
                    assert (root / f"object-{number}").read_text(encoding="utf-8") == TEXT
                    print(f"{uri}: {done.stdout}", end="")
                refused = subprocess.run([CLIENT, uris[0], "../object", TEXT], text=True, check=False,
                                         capture_output=True, timeout=60)
                assert refused.returncode == 3 and "INVALID_ARGUMENT" in refused.stderr, refused
            finally:
                server.terminate()
        assert server.returncode == 0, server.returncode


main()
