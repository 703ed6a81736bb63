#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "na/sm/peer_memory.h"
#include "support/catch.h"
#include "support/no_descriptors.h"

using namespace weft;
using na::sm::PeerMemory;

namespace {

// A socket whose other end is this very process.
struct OwnSocket {
    base::UniqueFd one, other;
    OwnSocket() {
        REQUIRE(PeerMemory::is_allowed());  // Or sm exposes no private memory.
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        one.reset(ends[0]);
        other.reset(ends[1]);
    }
};

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

}  // namespace

TEST_CASE("a peer's private memory is reached once the proof holds") {
    OwnSocket socket;
    const std::uint64_t number = 0x1234567890abcdef;
    PeerMemory memory;
    REQUIRE(memory.reach(socket.one.get(), {address_of(&number), number}).code == Code::ok);
    char theirs[16] = "what they have", mine[16] = {};
    CHECK(memory.read(address_of(theirs), {reinterpret_cast<std::byte*>(mine), sizeof mine}));
    CHECK(std::string(mine) == "what they have");
    CHECK(memory.write(address_of(theirs), as_bytes("now")));
    CHECK(std::string(theirs) == "nowt they have");
}

TEST_CASE("a proof that does not hold is refused, and asked for once") {
    OwnSocket socket;
    const std::uint64_t number = 5;
    PeerMemory wrong, unmapped;
    CHECK(std::string(wrong.reach(socket.one.get(), {address_of(&number), 6}).why) ==
          "its private memory is not what it says");
    CHECK(wrong.reach(socket.one.get(), {address_of(&number), 5}).code ==
          Code::failed_precondition);
    for (const std::uint64_t address :
         {std::uint64_t{0}, std::uint64_t{8}, ~std::uint64_t{0} - 3}) {
        PeerMemory nowhere;
        CHECK(std::string(nowhere.reach(socket.one.get(), {address, 0}).why) ==
              "its private memory is not where it says");
    }
}

TEST_CASE("a moment without file descriptors does not refuse private memory for good") {
    OwnSocket socket;
    const std::uint64_t number = 5;
    PeerMemory memory;
    const auto reach = [&] {
        return memory.reach(socket.one.get(), {address_of(&number), 5}).code;
    };
    {
        const test::NoDescriptors none;
        CHECK(reach() == Code::resource_exhausted);
    }
    CHECK(reach() == Code::ok);
}

TEST_CASE("a range of which a part is missing is not copied for a success") {
    OwnSocket socket;
    const std::uint64_t number = 5;
    PeerMemory memory;
    REQUIRE(memory.reach(socket.one.get(), {address_of(&number), 5}).code == Code::ok);
    void* pages = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    REQUIRE(::munmap(static_cast<std::byte*>(pages) + 4096, 4096) == 0);
    std::vector<std::byte> local(8192);
    CHECK_FALSE(memory.read(address_of(pages), local));
    CHECK_FALSE(memory.write(address_of(pages), local));
    CHECK(memory.read(address_of(pages), Bytes(local).first(4096)));
    ::munmap(pages, 4096);
}

TEST_CASE("the memory of a process that has ended is not there") {
    static const std::uint64_t number = 5;  // The child has it at the same address.
    const base::UniqueFd listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    socklen_t length = sizeof(sa_family_t);  // Any abstract name.
    REQUIRE(::bind(listener.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
    length = sizeof name;
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
        (void)!::connect(socket, reinterpret_cast<sockaddr*>(&name), length);
        while (true) ::pause();
    }
    const base::UniqueFd socket(::accept(listener.get(), nullptr, nullptr));
    PeerMemory memory;
    REQUIRE(memory.reach(socket.get(), {address_of(&number), 5}).code == Code::ok);
    std::uint64_t read = 0;
    CHECK(memory.read(address_of(&number), {reinterpret_cast<std::byte*>(&read), 8}));
    CHECK(read == 5);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK_FALSE(memory.read(address_of(&number), {reinterpret_cast<std::byte*>(&read), 8}));
    CHECK_FALSE(memory.write(address_of(&number), as_bytes("12345678")));
}
