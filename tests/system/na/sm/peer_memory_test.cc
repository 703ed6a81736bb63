#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>

#include "na/sm/peer_memory.h"
#include "na/sm/region_table.h"
#include "support/no_descriptors.h"
#include "support/private_memory.h"
#include "support/sm_node.h"

using namespace weft;
using na::sm::PeerMemory;

namespace {

// A socket pair with both ends in this process.
struct OwnSocket {
    base::UniqueFd one, other;
    OwnSocket() {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        one.reset(ends[0]);
        other.reset(ends[1]);
    }
};

std::uint64_t address_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at); }

// A listener of this process at an abstract name.
struct Listener {
    base::UniqueFd socket{::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)};
    sockaddr_un name{};
    socklen_t length = sizeof(sa_family_t);
    Listener() {
        name.sun_family = AF_UNIX;
        REQUIRE(::bind(socket.get(), reinterpret_cast<sockaddr*>(&name), length) == 0);
        length = sizeof name;
        REQUIRE(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&name), &length) == 0);
        REQUIRE(::listen(socket.get(), 1) == 0);
    }
    // Called in a child; a program that the child executes inherits the connection.
    void connect() const {
        const int end = ::socket(AF_UNIX, SOCK_SEQPACKET, 0);
        (void)!::connect(end, reinterpret_cast<const sockaddr*>(&name), length);
    }
    base::UniqueFd accept() const {
        return base::UniqueFd(::accept(socket.get(), nullptr, nullptr));
    }
};

constexpr const char* executed_program = "the program that a peer executes";

// A child that runs `body`. On request it executes `executed_program`, which sends the address of
// memory of its own. Both have their end of the socket as descriptor 0.
class ExecutingChild {
  public:
    template <class Body>
    explicit ExecutingChild(Body&& body) {
        int ends[2];
        REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) == 0);
        line_.reset(ends[0]);
        const base::UniqueFd its(ends[1]);
        child_ = ::fork();
        REQUIRE(child_ >= 0);
        if (child_ == 0) {
            ::prctl(PR_SET_PDEATHSIG, SIGKILL);
            ::alarm(60);
            ::dup2(its.get(), 0);
            body();
            ::execl("/proc/self/exe", "executed", "--warn", "NoTests", executed_program, nullptr);
            ::_exit(9);
        }
    }
    ~ExecutingChild() {
        if (child_ <= 0) return;
        ::kill(child_, SIGKILL);
        ::waitpid(child_, nullptr, 0);
    }
    // Returns when the program runs.
    std::uint64_t execute() {
        REQUIRE(::send(line_.get(), "x", 1, 0) == 1);
        std::uint64_t address = 0;
        REQUIRE(::recv(line_.get(), &address, sizeof address, 0) == ssize_t(sizeof address));
        return address;
    }
    // 0: the program found its memory unchanged.
    int end_of_program() {
        REQUIRE(::send(line_.get(), "e", 1, 0) == 1);
        int status = 0;
        REQUIRE(::waitpid(std::exchange(child_, 0), &status, 0) > 0);
        return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
    }

  private:
    base::UniqueFd line_;
    pid_t child_ = 0;
};

bool is_told_to_execute(int flags) {
    char byte = 0;
    return ::recv(0, &byte, 1, flags) == 1;
}

}  // namespace

TEST_CASE(executed_program, "[.]") {
    static volatile std::byte memory[4096];
    const std::uint64_t address = reinterpret_cast<std::uintptr_t>(&memory[0]);
    REQUIRE(::write(0, &address, sizeof address) == ssize_t(sizeof address));
    char byte = 0;
    REQUIRE(::read(0, &byte, 1) == 1);
    for (const volatile std::byte& one : memory) {
        if (one != std::byte{}) ::_exit(3);
    }
    ::_exit(0);
}

TEST_CASE("a peer's private memory is read and written once its nonce is valid") {
    if (!test::has_private_memory()) return;
    OwnSocket socket;
    const std::uint64_t number = 0x1234567890abcdef;
    PeerMemory memory;
    REQUIRE(memory.probe(socket.one.get(), {address_of(&number), number}).code == Code::ok);
    char theirs[16] = "what they have", mine[16] = {};
    CHECK(memory.read(address_of(theirs), {reinterpret_cast<std::byte*>(mine), sizeof mine}));
    CHECK(std::string(mine) == "what they have");
    CHECK(memory.write(address_of(theirs), as_bytes("now")));
    CHECK(std::string(theirs) == "nowt they have");
}

TEST_CASE("an invalid nonce is refused, and probed only once") {
    if (!test::has_private_memory()) return;
    OwnSocket socket;
    const std::uint64_t number = 5;
    PeerMemory wrong, unmapped;
    CHECK(std::string(wrong.probe(socket.one.get(), {address_of(&number), 6}).why) ==
          "its private memory does not hold the announced number");
    CHECK(wrong.probe(socket.one.get(), {address_of(&number), 5}).code ==
          Code::failed_precondition);
    for (const std::uint64_t address :
         {std::uint64_t{0}, std::uint64_t{8}, ~std::uint64_t{0} - 3}) {
        PeerMemory nowhere;
        CHECK(std::string(nowhere.probe(socket.one.get(), {address, 0}).why) ==
              "its private memory is not at the announced address");
    }
}

TEST_CASE("a temporary lack of file descriptors does not disable private memory for good") {
    if (!test::has_private_memory()) return;
    OwnSocket socket;
    const std::uint64_t number = 5;
    PeerMemory memory;
    const auto probe = [&] {
        return memory.probe(socket.one.get(), {address_of(&number), 5}).code;
    };
    {
        const test::NoDescriptors none;
        CHECK(probe() == Code::resource_exhausted);
    }
    CHECK(probe() == Code::ok);
}

TEST_CASE("a copy of a range with an unmapped part fails") {
    if (!test::has_private_memory()) return;
    OwnSocket socket;
    const std::uint64_t number = 5;
    PeerMemory memory;
    REQUIRE(memory.probe(socket.one.get(), {address_of(&number), 5}).code == Code::ok);
    void* pages = ::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(pages != MAP_FAILED);
    REQUIRE(::munmap(static_cast<std::byte*>(pages) + 4096, 4096) == 0);
    std::vector<std::byte> local(8192);
    CHECK_FALSE(memory.read(address_of(pages), local));
    CHECK_FALSE(memory.write(address_of(pages), local));
    CHECK(memory.read(address_of(pages), Bytes(local).first(4096)));
    ::munmap(pages, 4096);
}

TEST_CASE("accesses to the memory of a process that has ended fail") {
    if (!test::has_private_memory()) return;
    static std::uint64_t number = 5;  // The child has it at the same address.
    const Listener listener;
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        listener.connect();
        while (true) ::pause();
    }
    const base::UniqueFd socket = listener.accept();
    PeerMemory memory;
    REQUIRE(memory.probe(socket.get(), {address_of(&number), 5}).code == Code::ok);
    std::uint64_t read = 0;
    CHECK(memory.read(address_of(&number), {reinterpret_cast<std::byte*>(&read), 8}));
    CHECK(read == 5);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    CHECK_FALSE(memory.read(address_of(&number), {reinterpret_cast<std::byte*>(&read), 8}));
    CHECK_FALSE(memory.write(address_of(&number), as_bytes("12345678")));
}

// It keeps its process id, and here its socket, too.
TEST_CASE("a program that a peer executes is neither read nor written in place of the peer") {
    if (!test::has_private_memory()) return;
    const na::sm::RegionTable table = na::sm::RegionTable::make(0x1234567890abcdef).value();
    const na::sm::Nonce nonce = na::sm::RegionView::attach(table.file()).value().nonce();
    const std::vector<std::byte> theirs(64, std::byte{7});
    const Listener listener;
    ExecutingChild child([&] {  // The child has all of this at the same addresses as this process.
        listener.connect();
        if (!is_told_to_execute(0)) ::_exit(1);
    });
    const base::UniqueFd socket = listener.accept();
    PeerMemory memory;
    REQUIRE(memory.probe(socket.get(), nonce).code == Code::ok);
    std::vector<std::byte> local(64, std::byte{9});
    REQUIRE(memory.read(address_of(theirs.data()), local));
    REQUIRE(local == theirs);
    const std::uint64_t address = child.execute();
    CHECK_FALSE(memory.write(address, local));
    CHECK_FALSE(memory.read(address, local));
    CHECK(local == theirs);
    CHECK(child.end_of_program() == 0);
}

TEST_CASE("sm: a transfer with a peer that executed a program is UNAVAILABLE") {
    if (!test::has_private_memory()) return;
    const auto kind = GENERATE(na::RmaKind::put, na::RmaKind::get);
    const std::string name = test::unique_name("executes");
    ExecutingChild child([&] {
        std::vector<std::byte> memory(100);
        test::SmNode server(name);
        if (!server.endpoint->expose({3, 1, 1, memory, Access::read_write}).ok()) ::_exit(1);
        while (!is_told_to_execute(MSG_DONTWAIT)) server.turn();
        // Runs no destructors.
        ::execl("/proc/self/exe", "executed", "--warn", "NoTests", executed_program, nullptr);
    });
    test::SmNode client;
    na::PeerId peer;
    test::turn_until({&client}, [&] {  // The child may not listen yet.
        if (!peer) peer = client.connect(name);
        if (client.find(na::EventKind::peer_down)) {
            client.take(na::EventKind::peer_down);
            peer = {};
        }
        return client.find(na::EventKind::peer_up) != nullptr;
    });
    std::vector<std::byte> local(100);
    const na::RmaItem item{kind, peer, 3, 1, 1, {}, 0, local, 0};
    const auto transfer = [&] {
        REQUIRE(client.endpoint->post({&item, 1}) == 1);
        return test::await({&client}, client, na::EventKind::rma_done);
    };
    REQUIRE(transfer().event.code == Code::ok);
    child.execute();
    const test::Seen done = transfer();
    INFO(done.error);
    CHECK(done.event.code == Code::unavailable);
    CHECK(done.error.find("the peer's process has ended, or executes another program") !=
          std::string::npos);
    CHECK(child.end_of_program() == 0);
}
