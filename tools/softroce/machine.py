"""A small virtual machine with Debian's kernel, the host's files and a Soft-RoCE device (rxe).

Nothing is installed in it or on the host: the kernel is a Debian package that is unpacked below
build/softroce. The processor is emulated, so only ratios measured in one boot are meaningful."""
import contextlib
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
HERE = pathlib.Path(__file__).resolve().parent
PLACE = REPOSITORY / "build" / "softroce"
# rdma_rxe needs crc32_generic and does not declare it.
MODULES = ("crc32_generic virtio_pci virtio_console virtio_net 9p 9pnet_virtio overlay ib_uverbs "
           "rdma_ucm rdma_rxe dummy sch_netem").split()
QEMU = "qemu-system-x86_64"
MEMORY_MIB = 4096


class Failure(Exception):
    """One sentence: what is missing or failed, and the remedy."""


def _run(command, **options):
    done = subprocess.run(command, text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        words = (done.stderr or done.stdout).strip().splitlines()
        raise Failure(f"{' '.join(map(str, command[:3]))} failed: {words[-1] if words else 'no output'}")
    return done.stdout


def _kernel_package():
    """The oldest kernel that apt offers: the release's kernel, which changes less often than that of the
    security updates."""
    listed = _run(["apt-cache", "madison", "linux-image-amd64"]).splitlines()
    offered = [line for line in listed if line.rstrip().endswith(" Packages")]  # The newest first.
    if offered:
        version = offered[-1].split("|")[1].strip()
        shown = _run(["apt-cache", "show", f"linux-image-amd64={version}"])
        for line in shown.splitlines():
            if line.startswith("Depends: linux-image-"):
                return line.split()[1]
    raise Failure("apt-cache has no kernel for linux-image-amd64; `apt-get update` may help")


def _download(into):
    try:
        package = _kernel_package()
        _run(["apt-get", "download", "-q", package], cwd=into)
    except Failure:
        _run(["apt-get", "update", "-q"] if os.geteuid() == 0 else ["sudo", "-n", "apt-get", "update", "-q"])
        package = _kernel_package()
        _run(["apt-get", "download", "-q", package], cwd=into)
    return glob.glob(f"{into}/linux-image-*.deb")[0]


def _unpack_kernel():
    """The folder of the kernel and its modules; unpacks them from a package once."""
    with contextlib.suppress(Failure):
        kernel = PLACE / _kernel_package()
        if kernel.exists():
            return kernel
    PLACE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        package = _download(folder)
        kernel = PLACE / os.path.basename(package).split("_")[0]
        _run(["dpkg", "-x", package, f"{folder}/kernel"])
        version = os.listdir(f"{folder}/kernel/lib/modules")[0]
        _run(["/sbin/depmod", "-b", f"{folder}/kernel", version])
        os.rename(f"{folder}/kernel", kernel)
    return kernel


def _pack_start(kernel):
    """The initial file system of the guest: busybox, modules in their order, `init`."""
    archive = PLACE / "start.cpio"
    version = os.listdir(kernel / "lib/modules")[0]
    order = []
    for name in MODULES:
        shown = _run(["/sbin/modprobe", "-d", str(kernel), "-S", version, "--show-depends", name])
        for line in shown.splitlines():
            if line.startswith("insmod "):
                path = line.split()[1]
                if path not in order:
                    order.append(path)
    with tempfile.TemporaryDirectory(dir=PLACE) as folder:
        root = pathlib.Path(folder)
        (root / "bin").mkdir()
        (root / "modules").mkdir()
        shutil.copy("/bin/busybox", root / "bin")
        shutil.copy(HERE / "init", root / "init")
        os.chmod(root / "init", 0o755)
        for path in order:
            shutil.copy(path, root / "modules")
        (root / "modules" / "order").write_text(
            "".join(os.path.basename(path) + "\n" for path in order))
        names = subprocess.run(["find", "."], cwd=root, stdout=subprocess.PIPE, check=True).stdout
        with open(archive, "wb") as out:
            subprocess.run(["cpio", "-o", "-H", "newc", "--quiet"], cwd=root, input=names, stdout=out,
                           check=True)
    return archive


def prepare():
    """Prepares everything that a boot needs. Raises Failure."""
    for tool in (QEMU, "cpio"):
        if not shutil.which(tool):
            raise Failure(f"{tool} is missing: `make softroce` installs what "
                          "tools/packages-softroce.txt names")
    if not os.path.exists("/bin/busybox"):
        raise Failure("/bin/busybox is missing: it is in the package busybox-static")
    kernel = _unpack_kernel()
    return glob.glob(f"{kernel}/boot/vmlinuz-*")[0], _pack_start(kernel)


def network_of(number, folder):
    """The options of QEMU that connect guests 1 and 2: two network cards each. Their frames are
    datagrams between sockets in `folder`. The first network carries the RDMA device, and faults; the
    second one carries commands."""
    words = []
    for card, name in enumerate(("roce", "talk")):
        ends = [f"{end}.type=unix,{end}.path={folder}/{name}{which}"
                for end, which in (("local", number), ("remote", 3 - number))]
        words += ["-netdev", f"dgram,id={name},{','.join(ends)}", "-device",
                  f"virtio-net-pci,netdev={name},romfile=,mac=52:54:00:77:0{card}:0{number}"]
    return words


class Guest:
    """One boot that runs `job`, a shell script, in the repository. `number`, `network`: for two
    connected guests; see guest.sh."""

    def __init__(self, image, job, out, number=0, network=(), interactive=False):
        self.out = pathlib.Path(out)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / "status").unlink(missing_ok=True)
        (self.out / "job").write_text(job)
        kernel, start = image
        words = (f"console=ttyS0 quiet panic=-1 mitigations=off softroce.repository={REPOSITORY} "
                 f"softroce.number={number}")
        command = [QEMU, "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", str(MEMORY_MIB),
                   "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
                   "-kernel", kernel, "-initrd", str(start), "-append", words,
                   "-serial", f"file:{self.out}/console.log",
                   "-device", "virtio-serial", "-chardev", "stdio,id=talk,signal=off",
                   "-device", "virtconsole,chardev=talk",
                   "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
                   "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
                   "-fsdev", f"local,id=out,path={self.out},security_model=none",
                   "-device", "virtio-9p-pci,fsdev=out,mount_tag=out", *network]
        self.process = subprocess.Popen(
            command, stdin=None if interactive else subprocess.DEVNULL,
            stdout=None if interactive else subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace")

    def lines(self):
        """The lines of the job's output, as they arrive."""
        for line in self.process.stdout:
            yield line.replace("\r", "").rstrip("\n")

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()

    def status(self):
        """The job's exit status. Raises Failure when the guest ended without one."""
        self.process.wait()
        try:
            return int((self.out / "status").read_text())
        except (OSError, ValueError):
            console = self.out / "console.log"
            last = console.read_text(errors="replace").splitlines()[-15:] if console.exists() else []
            raise Failure("the guest ended before its job did; the end of its console:\n  " +
                          "\n  ".join(last)) from None


if __name__ == "__main__":
    begin = time.monotonic()
    guest = Guest(prepare(), sys.argv[1] if len(sys.argv) > 1 else "ibv_devinfo", PLACE / "try")
    for text in guest.lines():
        print(text, flush=True)
    print("status", guest.status(), f"{time.monotonic() - begin:.1f} s")
