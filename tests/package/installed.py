#!/usr/bin/env python3
"""The files of `cmake --install`, used as a new user would.

    installed.py BUILD SOURCE    installs to a prefix of its own, checks every file, builds and
                                 runs tests/package/consumer against it, moves it, and again
    installed.py --at PREFIX CHECK...
                                 some of the checks of the files installed there: typed, pkg_config,
                                 readme, template, components, asio, asio_without_boost; at least one
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

CONSUMER = pathlib.Path(__file__).resolve().parent / "consumer"
README = CONSUMER.parents[2] / "README.md"
GENERATED = {"bulk.pb.h", "options.pb.h"}


class Failure(Exception):
    pass


def run(*command, fails=False, **environment):
    """Returns its output; raises unless it fails exactly when `fails`."""
    done = subprocess.run([str(word) for word in command], env={**os.environ, **environment},
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=600, check=False)
    if (done.returncode != 0) != fails:
        raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                      f"{done.stdout}")
    return done.stdout


def expect(what, found, wanted):
    if found != wanted:
        raise Failure(f"{what}: found {found!r}, not {wanted!r}")


def say(text):
    print(f"installed: {text}", flush=True)


def look_at_files(prefix, build, source):
    """The public headers and no others; no text with the place of the build."""
    def headers(root):
        return {str(path.relative_to(root / "include/weft"))
                for path in (root / "include/weft").rglob("*") if path.is_file()}

    expect("headers", sorted(headers(prefix)), sorted(headers(source) | GENERATED))
    places = [str(place).encode() for place in (source, build, prefix)]
    for path in filter(pathlib.Path.is_file, prefix.rglob("*")):
        content = path.read_bytes()
        if b"\0" in content:  # Line tables of programs and archives name their sources.
            continue
        for place in places:
            if place in content:
                raise Failure(f"{path.relative_to(prefix)} names {place.decode()}")


class Consumer:
    def __init__(self, place, prefix):
        self.place, self.prefix = place, prefix

    def configure(self, components="", fails=False, source=CONSUMER, version="0.1"):
        return run("cmake", "-S", source, "-B", self.place, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   f"-DCOMPONENTS={components}", f"-DVERSION={version}",
                   "-DCMAKE_BUILD_TYPE=Debug", fails=fails)

    def build(self, *targets):
        chosen = ["--target", *targets] if targets else []
        return run("cmake", "--build", self.place, "-j", len(os.sched_getaffinity(0)), *chosen)

    def refused(self, sentence, **asked):
        said = " ".join(self.configure(fails=True, **asked).split())
        if sentence not in said:
            raise Failure(f"{asked}: {sentence!r} is not in: {said}")

    def check_typed(self):
        self.configure()
        self.build()
        expect("typed", run(self.place / "typed"), "typed: sum 49500\n")
        say("find_package(weft) and weft_generate() build a service, and it answers")

    def check_readme(self):
        """The section "Installed" of README.md."""
        text = README.read_text(encoding="utf-8")
        source = self.place.with_suffix(".readme")
        source.mkdir()
        for path, block in re.findall(r"whole \(`([^`]+)`\):\n+```\w*\n(.*?)```", text, re.S):
            (source / os.path.basename(path)).write_text(block, encoding="utf-8")
        block = re.search(r"^## Installed\n.*?```cmake\n(.*?)```", text, re.S | re.M).group(1)
        (source / "CMakeLists.txt").write_text(block, encoding="utf-8")
        readme = Consumer(source / "build", self.prefix)
        readme.configure(source=source)
        readme.build()
        say("the project of README.md's \"Installed\" builds")

    def check_template(self):
        """The project of `weft new`, by the commands of its own README.md."""
        project = self.place.with_suffix(".new")
        run(self.prefix / "bin/weft", "new", project)
        new = Consumer(project / "build", self.prefix)
        new.configure(source=project)
        new.build()
        expect("greeter_test", run(project / "build/greeter_test"), "all seeds hold\n")
        with subprocess.Popen([project / "build/server"]) as server:
            try:
                for _ in range(100):
                    done = subprocess.run([project / "build/client", "reader"], text=True, timeout=60,
                                          stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
                    if done.returncode == 0:
                        break
            finally:
                server.terminate()
        expect("client", done.stdout, "hello reader\n")
        say("weft new writes a project that builds, passes its test and answers")

    def check_components(self):
        self.configure("tools")
        version = run(self.prefix / "bin/weft", "--version")
        if version not in self.build("version"):
            raise Failure(f"weft::cli did not print {version}")
        self.refused("weft has no component 'rdma', only core, asio and tools.",
                     components="tools;rdma")
        self.refused('compatible with requested version "0.2"', version="0.2")
        say("components: those that are there are found, others refused by name")

    def check_asio(self):
        if (self.prefix / "include/weft/asio.h").exists():
            self.configure("asio")
            self.build("with_asio")
            run(self.place / "with_asio")
            say("weft::asio builds a program")
        else:
            self.refused("component asio: this weft was installed without <weft/asio.h>.",
                         components="asio")
            say("component asio is refused without its header")

    def check_asio_without_boost(self):
        self.refused("component asio: there are no headers of Boost >= 1.81.", components="asio")
        say("component asio is refused without Boost")

    def check_pkg_config(self):
        pc = next(self.prefix.rglob("weft.pc")).parent
        place = self.place.with_suffix(".make")
        place.mkdir()
        for source in ("Makefile", "raw.cc"):
            shutil.copy(CONSUMER / source, place)
        run("make", "-C", place, "raw", PKG_CONFIG_PATH=str(pc))
        expect("raw", run(place / "raw"), "raw: hello\n")
        flags = run("pkg-config", "--cflags", "weft", PKG_CONFIG_PATH=str(pc))
        expect("macros of pkg-config", [one for one in flags.split() if one.startswith("-D")], [])
        version = run("pkg-config", "--modversion", "weft", PKG_CONFIG_PATH=str(pc))
        expect("weft --version", run(self.prefix / "bin/weft", "--version"), f"weft {version}")
        for separate in ("perf", "sim"):
            run(self.prefix / "bin/weft", separate, "--help")
        say("pkg-config and make build a program on calls in bytes, and it answers")


def check_installation(build, source, place):
    first, second = place / "first", place / "second"
    run("cmake", "--install", build, "--prefix", first)
    look_at_files(first, build, source)
    say("only public headers, and no file with the place of the build")

    Consumer(place / "one", first).check_typed()
    # Nothing may refer to the previous place.
    first.rename(second)
    moved = Consumer(place / "two", second)
    moved.check_pkg_config()
    moved.check_readme()
    moved.check_template()
    moved.check_components()
    moved.check_asio()
    asio = second / "include/weft/asio.h"
    if not asio.exists():
        asio.write_text("#pragma once\n", encoding="utf-8")
        moved.check_asio()

    run("cmake", "--install", build, DESTDIR=str(place / "staged"))
    prefix = next((place / "staged").rglob("include")).parent
    names = [sorted(str(path.relative_to(top)) for path in top.rglob("*") if path.name != "asio.h")
             for top in (prefix, second)]
    expect("files with DESTDIR", names[0], names[1])
    say("the tree can be moved, and staged by DESTDIR")


def check_some(consumer, names):
    checks = [getattr(consumer, f"check_{name}", None) for name in names]
    if not checks or None in checks:
        raise Failure(f"no such check, or none: {' '.join(names)}")
    for check in checks:
        check()


def main():
    with tempfile.TemporaryDirectory(prefix="weft-installed-") as name:
        place = pathlib.Path(name)
        os.environ["XDG_RUNTIME_DIR"] = name  # The directory of sm's names: no other process uses
                                              # this one.
        try:
            if sys.argv[1] == "--at":
                check_some(Consumer(place / "build", pathlib.Path(sys.argv[2])), sys.argv[3:])
            else:
                check_installation(*(pathlib.Path(one).resolve() for one in sys.argv[1:3]), place)
        except Failure as failure:
            say(failure)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
