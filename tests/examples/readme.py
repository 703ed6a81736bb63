#!/usr/bin/env python3
"""Does what README.md says to a newcomer: copies its files beside a checkout, builds, greets.

Takes minutes where nothing is cached: a step of .ci/run, not a test of `make test`.
"""
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]


def main():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files = {os.path.basename(path): block for path, block in
             re.findall(r"whole \(`([^`]+)`\):\n+```\w*\n(.*?)```", text, re.S)}
    files["CMakeLists.txt"] = re.search(r"```cmake\n(.*?)```", text, re.S).group(1)
    build = re.search(r"`(cmake -B build && [^`]+)`", text).group(1)
    with tempfile.TemporaryDirectory(prefix="weft-readme-") as place:
        for name, content in files.items():
            (pathlib.Path(place) / name).write_text(content, encoding="utf-8")
        (pathlib.Path(place) / "weft").symlink_to(ROOT)
        # As it is written there, on all processors, and without the optimiser: its turn is elsewhere.
        subprocess.run(build, shell=True, check=True, cwd=place, env={
            "CMAKE_BUILD_TYPE": "Debug", "CMAKE_BUILD_PARALLEL_LEVEL": str(os.cpu_count()),
            **os.environ})
        names = pathlib.Path(place) / "run"  # Where sm's names live: nobody else's there.
        names.mkdir(mode=0o700)
        os.environ["XDG_RUNTIME_DIR"] = str(names)
        with subprocess.Popen(["build/server"], cwd=place) as server:
            try:
                for _ in range(100):
                    said = subprocess.run(["build/client", "reader"], cwd=place, text=True,
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                          timeout=30, check=False).stdout
                    if said:
                        break
            finally:
                server.terminate()
    print(f"readme: {said.strip() or 'no answer'}")
    return 0 if said == "hello reader\n" else 1


if __name__ == "__main__":
    sys.exit(main())
