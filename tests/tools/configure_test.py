#!/usr/bin/env python3
"""How a project may configure weft: with a plugin of its own, shared, with its symbols hidden."""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = ["-DWEFT_BUILD_TESTS=OFF", "-DWEFT_BUILD_TOOLS=OFF", "-DBUILD_SHARED_LIBS=ON",
           "-DCMAKE_CXX_VISIBILITY_PRESET=hidden", "-DCMAKE_VISIBILITY_INLINES_HIDDEN=ON"]


class Configure(unittest.TestCase):
    def test_what_the_user_names_stays_and_weft_exports_its_symbols(self):
        plugin = sys.executable  # Any file that is there.
        with tempfile.TemporaryDirectory(prefix="weft-test-") as build:
            for given in ([f"-DWEFT_PLUGIN={plugin}"], []):
                subprocess.run(["cmake", "-G", "Ninja", "-S", SOURCE, "-B", build, *OPTIONS, *given],
                               check=True, capture_output=True, text=True)
                cache = pathlib.Path(build, "CMakeCache.txt").read_text()
                self.assertRegex(cache, rf"(?m)^WEFT_PLUGIN:\w+={plugin}$")
            commands = json.loads(pathlib.Path(build, "compile_commands.json").read_text())
            self.assertTrue(any("/src/na/" in each["file"] for each in commands))
            hidden = [each["file"] for each in commands
                      if "-fvisibility=hidden" in each["command"]]
            self.assertEqual(hidden, [])


if __name__ == "__main__":
    unittest.main()
