#!/usr/bin/env python3
"""The Debian packages in a root without weft: installed by apt, built against, run.

    tools/deb.sh && tests/package/clean_root.py      as root; the first time fetches 150 MB

The root is Debian 12's smallest, with a compiler, cmake and make; libraries come as dependencies of
the packages alone. It is unpacked for each run from build/clean-root/base.tar, which is rebuilt
when it is a week old. Inside, in mount and process namespaces of its own, without a network:
examples/02_three_calls as the package ships it, tests/package/consumer, the weft command and its
completion. Environment: WEFT_DEBIAN_MIRROR, default http://deb.debian.org/debian.
"""
import contextlib
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build/clean-root"
SUITE = "bookworm"
MIRROR = os.environ.get("WEFT_DEBIAN_MIRROR", "http://deb.debian.org/debian")
# Tools for compiling, and nothing that weft's packages should install themselves.
HAS = ("g++", "cmake", "make", "python3", "zsh")
BASE_AGE_MAX = 7 * 24 * 3600
EXAMPLE = "/usr/share/doc/libweft-dev/examples/02_three_calls"


class Failure(Exception):
    pass


def run(*command, timeout=1200, **more):
    done = subprocess.run([str(word) for word in command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          errors="replace", timeout=timeout, check=False, **more)
    if done.returncode != 0:
        raise Failure(f"{' '.join(map(str, command))}: exit status {done.returncode}\n"
                      + "\n".join(done.stdout.splitlines()[-60:]))
    return done.stdout


class Root:
    """A directory that programs use as /. They see their own processes only, which end with the
    command that started them, and no mount is left."""

    SET_UP = ('mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" && '
              'mkdir -p "$0/var/cache/apt/archives" && '
              'mount --bind "$1" "$0/var/cache/apt/archives" && shift && '
              'exec chroot "$0" "$@"')

    def __init__(self, path, archives):
        self.path, self.archives = path, archives

    def run(self, *command, network=False):
        apart = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "--ipc"]
        if not network:
            apart.append("--net")
            # The loopback interface is down in a new network namespace.
            command = ("python3", "-c", BRING_UP_LOOPBACK, *command)
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LC_ALL": "C.UTF-8",
                       "DEBIAN_FRONTEND": "noninteractive"}
        return run(*apart, "sh", "-c", self.SET_UP, self.path, self.archives, *command,
                   env=environment)


BRING_UP_LOOPBACK = """
import fcntl, os, socket, struct, sys
with socket.socket() as any:
    fcntl.ioctl(any, 0x8914, struct.pack("16sh14x", b"lo", 0x1))  # SIOCSIFFLAGS, IFF_UP
os.execvp(sys.argv[1], sys.argv[1:])
"""


def make_base(base, archives):
    """A tar file of the bare root, so that the next run unpacks it in a second."""
    if base.exists() and time.time() - base.stat().st_mtime < BASE_AGE_MAX:
        return
    made = PLACE / "made"
    shutil.rmtree(made, ignore_errors=True)
    say(f"making a root of {SUITE} from {MIRROR}")
    run("debootstrap", "--variant=minbase", f"--cache-dir={archives}", SUITE, made, MIRROR)
    for name in glob.glob("/etc/apt/apt.conf.d/*proxy*"):
        shutil.copy(name, made / "etc/apt/apt.conf.d")
    shutil.copy("/etc/resolv.conf", made / "etc/resolv.conf")
    root = Root(made, archives)
    root.run("apt-get", "update", "-q", network=True)
    root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", *HAS, network=True)
    unfinished = base.with_suffix(".unfinished")
    run("tar", "-C", made, "--exclude=./var/cache/apt/archives/*", "-cf", unfinished, ".")
    unfinished.rename(base)
    shutil.rmtree(made)


def packages():
    found = sorted((ROOT / "build/deb").glob("*.deb"))
    if len(found) != 2:
        raise Failure("build/deb has no packages: run tools/deb.sh first")
    return found


def say(text):
    print(f"clean root: {text}", flush=True)


@contextlib.contextmanager
def timed(what):
    started = time.monotonic()
    yield
    say(f"{what}: {time.monotonic() - started:.0f} s")


def check_installed(root, *checks):
    print(root.run("/src/tests/package/installed.py", "--at", "/usr", *checks), end="")


def check(root):
    for path in packages():
        shutil.copy(path, root.path / "root")
    with timed("installed both packages and their dependencies"):
        root.run("apt-get", "update", "-q", network=True)
        root.run("sh", "-c", "apt-get install -y -q --no-install-recommends /root/*.deb",
                 network=True)
    info = root.run("weft", "info")
    for transport in ("sm", "tcp", "ofi+tcp"):
        if transport not in info:
            raise Failure(f"weft info does not list {transport}:\n{info}")

    source = root.path / "src"
    for part in ("tests/package", "docs", "tools", "include"):
        shutil.copytree(ROOT / part, source / part)
    shutil.copy(ROOT / "README.md", source)
    with timed("built and ran the example of three calls as the package ships it"):
        root.run("cmake", "-S", EXAMPLE, "-B", "/src/three")
        root.run("cmake", "--build", "/src/three")
        print(root.run("/src/tests/package/three_calls.py", "/src/three/three_calls_server",
                       "/src/three/three_calls_client", EXAMPLE), end="")
    with timed("built and ran the consumer"):
        check_installed(root, "typed", "pkg_config", "readme", "components", "asio_without_boost")
    with timed("with Boost, which is suggested only"):
        root.run("apt-get", "install", "-y", "-q", "--no-install-recommends", "libboost1.81-dev",
                 network=True)
        check_installed(root, "asio")
    with timed("completion and manual pages"):
        root.run("/src/tests/package/manuals.py", "weft", "/src", "Completion", "ManualPage")
    with timed("removed both packages"):
        root.run("apt-get", "purge", "-y", "-q", "weft", "libweft-dev")
        left = root.run("sh", "-c", "find /usr /etc /var/lib -path '*weft*' ! -path '*/dpkg/*'")
        if left:
            raise Failure(f"left behind:\n{left}")


def main():
    if os.geteuid() != 0:
        say("needs root, for chroot and mounts of its own")
        return 1
    started = time.monotonic()
    archives = PLACE / "archives"
    archives.mkdir(parents=True, exist_ok=True)
    root = Root(PLACE / "root", archives)
    try:
        packages()
        make_base(PLACE / "base.tar", archives)
        shutil.rmtree(root.path, ignore_errors=True)
        root.path.mkdir()
        run("tar", "-C", root.path, "-xf", PLACE / "base.tar")
        check(root)
    except (Failure, subprocess.TimeoutExpired) as failure:
        say(f"FAILED: {failure}")
        return 1
    finally:
        shutil.rmtree(root.path, ignore_errors=True)
    say(f"both packages install, serve and leave, in {time.monotonic() - started:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
