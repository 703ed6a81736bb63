#!/usr/bin/env python3
"""Configurations of weft in a project: with a plugin of its own, shared, with hidden symbols; and
the refusals of weft_generate()."""
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
        plugin = sys.executable  # Any existing file.
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

    def test_weft_generate_refuses_a_target_of_another_directory(self):
        with tempfile.TemporaryDirectory(prefix="weft-test-") as place:
            inner = pathlib.Path(place, "inner")
            inner.mkdir()
            pathlib.Path(place, "CMakeLists.txt").write_text(
                "cmake_minimum_required(VERSION 3.25)\nproject(outer NONE)\n"
                f"include({SOURCE}/cmake/weft_generate.cmake)\n"
                "add_library(protos INTERFACE)\nadd_subdirectory(inner)\n")
            (inner / "a.proto").write_text('syntax = "proto3";\n')
            (inner / "CMakeLists.txt").write_text("weft_generate(TARGET protos PROTOS a.proto)\n")
            done = subprocess.run(["cmake", "-G", "Ninja", "-S", place, "-B", f"{place}/build"],
                                  check=False, capture_output=True, text=True)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(f"weft_generate: the target 'protos' is made in {place}: call",
                          " ".join(done.stderr.split()))


if __name__ == "__main__":
    unittest.main()
