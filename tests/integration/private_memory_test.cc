// Memory outside the arena, exposed over sm: to another process, and where the kernel refuses.
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <string>
#include <thread>
#include <vector>

#include <weft/runtime.h>

#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/private_memory.h"
#include "support/region_server.h"
#include "support/test_timeout.h"

using namespace weft;
using test::test_timeout;

namespace {

constexpr MethodId look("test.Private/Look");
constexpr std::size_t bytes = 3'000'001;

// Replies whether its memory is filled with the bytes of a put.
struct FilledRegionServer final : test::RegionServer {
    FilledRegionServer() : RegionServer(bytes, std::byte{7}) {}
    void register_methods(MethodRegistrar& registrar) override {
        RegionServer::register_methods(registrar);
        registrar.add(look, [this](Call call) {
            const bool filled = memory == std::vector<std::byte>(bytes, std::byte{9});
            call.reply(as_bytes(filled ? "filled" : "not filled"));
        });
    }
};

struct Client {
    explicit Client(const std::string& uri) { channel = runtime.connect(uri).value(); }

    Status call(const MethodId& method, std::string& reply) {
        return wait([&](auto done) {
            channel.call(method, {}, {.timeout = test_timeout},
                         [&reply, done](const Status& with, ByteView body) mutable {
                             reply = as_text(body);
                             done(with);
                         });
        });
    }
    RegionRef ref() {
        std::string reply;
        REQUIRE(call(test::RegionServer::get_ref, reply).ok());
        return RegionRef::decode(as_bytes(reply)).value();
    }
    Status get(const RegionRef& from, Buffer local) {
        return wait([&](auto done) {
            channel.get(from, 0, std::move(local), {.timeout = test_timeout}, done);
        });
    }
    Status put(const RegionRef& to, Buffer local) {
        return wait([&](auto done) {
            channel.put(to, 0, std::move(local), {.timeout = test_timeout}, done);
        });
    }

    Runtime runtime = Runtime::create({.manual = true}).value();
    Channel channel;

  private:
    template <class Start>
    Status wait(Start&& start) {
        bool is_done = false;
        Status status;
        start([&is_done, &status](const Status& with) {
            status = with;
            is_done = true;
        });
        REQUIRE(runtime.turn_until([&] { return is_done; }, test_timeout));
        return status;
    }
};

std::string uri_of(const char* what) {
    return std::string("sm://private-") + what + "-" + std::to_string(::getpid());
}

}  // namespace

TEST_CASE("private memory of another process is read and written over sm") {
    if (!test::has_private_memory()) return;
    const std::string uri = uri_of("far");
    int ready[2];
    REQUIRE(::pipe(ready) == 0);
    const pid_t server = ::fork();
    REQUIRE(server >= 0);
    if (server == 0) {
        ::prctl(PR_SET_PDEATHSIG, SIGKILL);
        FilledRegionServer region_server;
        Runtime runtime = Runtime::create().value();
        if (!region_server.start(runtime, uri, Access::read_write).ok()) ::_exit(1);
        (void)!::write(ready[1], "r", 1);
        while (true) ::pause();
    }
    ::close(ready[1]);
    char byte = 0;
    REQUIRE(::read(ready[0], &byte, 1) == 1);
    ::close(ready[0]);
    {
        Client client(uri);
        const RegionRef ref = client.ref();
        std::vector<std::byte> mine(bytes);
        Buffer local = GENERATE(true, false) ? Buffer::adopt(mine, nullptr)
                                             : client.runtime.allocate(bytes).value();
        REQUIRE(client.get(ref, local).ok());
        CHECK(std::all_of(local.bytes().begin(), local.bytes().end(),
                          [](std::byte b) { return b == std::byte{7}; }));
        std::memset(local.data(), 9, bytes);
        REQUIRE(client.put(ref, local).ok());
        std::string filled;
        REQUIRE(client.call(look, filled).ok());
        CHECK(filled == "filled");
    }
    ::kill(server, SIGKILL);
    ::waitpid(server, nullptr, 0);
}

TEST_CASE("a transfer fails with the remedy when the kernel refuses private memory") {
    if (!test::has_private_memory()) return;
    const std::string uri = uri_of("refused");
    FilledRegionServer region_server;
    Runtime server = Runtime::create().value();
    REQUIRE(region_server.start(server, uri, Access::read_write).ok());
    Status status;
    std::string after;
    std::thread([&] {
        REQUIRE(test::refuse_call(SYS_process_vm_readv, EPERM));
        Client client(uri);
        status = client.get(client.ref(), client.runtime.allocate(bytes).value());
        REQUIRE(client.call(look, after).ok());
    }).join();
    CHECK(status.code() == Code::failed_precondition);
    CHECK(status.text().find("ptrace_scope") != std::string_view::npos);
    CHECK(status.text().find("Runtime::allocate()") != std::string_view::npos);
    CHECK(after == "not filled");
}

TEST_CASE("a process that may read no memory exposes none but the arena's", "[.]") {
    REQUIRE_FALSE(na::sm::PeerMemory::is_allowed());
    Runtime runtime = Runtime::create().value();
    REQUIRE(runtime.listen(uri_of("none")).ok());
    std::vector<std::byte> mine(4096);
    const Result<Region> refused = runtime.expose(Buffer::adopt(mine, nullptr), {});
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::unimplemented);
    CHECK(refused.status().text().find("Runtime::allocate()") != std::string_view::npos);
    CHECK(runtime.expose(runtime.allocate(4096).value(), {}).ok());
}

// In a process of its own, since a process checks the permission once.
TEST_CASE("a process exposes no private memory over sm when the kernel refuses access") {
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
        if (!test::refuse_call(SYS_process_vm_readv, EPERM)) ::_exit(9);
        ::execl("/proc/self/exe", "refused", "--warn", "NoTests",
                "a process that may read no memory exposes none but the arena's", nullptr);
        ::_exit(8);
    }
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
}
