# Builds the checkout that this file is in:
#
#     spack repo add weft/spack
#     spack install weft
from pathlib import Path

from spack.package import *


class Weft(CMakePackage):
    """RPC with bulk transfer and collectives for storage and HPC: services defined in protobuf,
    gigabytes moved by a small reference inside any message, server groups called as one."""

    git = Path(__file__).resolve().parents[3].as_uri()

    license("Apache-2.0")

    # What is committed there, until there are releases to name.
    version("0.1.0", branch="main")

    variant("shared", default=False, description="Build a shared library")
    variant("tools", default=True, description="Build the weft command")
    variant("ofi", default=True, description="Build the ofi+tcp transport")
    variant("verbs", default=True, description="Build the verbs transport")
    variant("asio", default=True, description="Bring what <weft/asio.h> includes")

    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    # weftConfig.cmake asks it for rdma-core.
    depends_on("pkgconfig", type=("build", "link"))
    # Its packages of CMake and its descriptors change with 4 (22.0).
    depends_on("protobuf@3.21", type=("build", "link", "run"))
    depends_on("spdlog@1.10:")
    depends_on("libfabric@1.17: fabrics=tcp,rxm", when="+ofi")
    depends_on("rdma-core", when="+verbs")
    depends_on("boost@1.81:", type=("build", "link"), when="+asio")  # Headers only.
    depends_on("cli11@2.1:", type="build", when="+tools")
    depends_on("nlohmann-json@3.11:", type="build", when="+tools")
    depends_on("isa-l", when="+tools")

    conflicts("%gcc@:11", msg="weft needs coroutines of C++20 as g++ 12 has them")
    conflicts("platform=darwin", msg="weft stands on epoll and memfd_create of Linux")

    def cmake_args(self):
        return [
            self.define_from_variant("BUILD_SHARED_LIBS", "shared"),
            self.define_from_variant("WEFT_BUILD_TOOLS", "tools"),
            self.define_from_variant("WEFT_OFI", "ofi"),
            self.define_from_variant("WEFT_VERBS", "verbs"),
            self.define("WEFT_BUILD_TESTS", False),
        ]
