// No descriptor of a runtime stays open in a forked child, whatever other threads of the parent
// open and close at the fork.
#include <fcntl.h>
#include <sys/socket.h>

#include <atomic>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <weft/runtime.h>

#include "base/unique_fd.h"
#include "support/catch.h"
#include "support/child.h"
#include "support/private_memory.h"
#include "support/region_server.h"
#include "support/special_descriptors.h"
#include "support/test_timeout.h"

namespace weft::fork_descriptors {
namespace {

using test::descriptors_besides;
using test::RegionServer;
using test::special_descriptors;
using test::test_timeout;

struct End {
    Status status;
    std::string reply;
    std::atomic<bool> is_known{false};
    bool wait() const {
        const auto until = std::chrono::steady_clock::now() + 2 * test_timeout;
        while (!is_known && std::chrono::steady_clock::now() < until) std::this_thread::yield();
        return is_known && status.ok();
    }
};

bool call(const Channel& channel, std::string& reply) {
    End end;
    channel.call(RegionServer::get_ref, {}, {.timeout = test_timeout},
                 [&](const Status& status, ByteView body) {
                     end.status = status;
                     end.reply = as_text(body);
                     end.is_known = true;
                 });
    reply = end.wait() ? end.reply : "";
    return end.status.ok();
}

bool get(const Channel& channel, const RegionRef& from) {
    static std::vector<std::byte> into(100'000);
    End end;
    channel.get(from, 0, Buffer::adopt(into, nullptr), {.timeout = test_timeout},
                [&](const Status& status) {
                    end.status = status;
                    end.is_known = true;
                });
    return end.wait();
}

std::vector<std::string> uris() {
    static int count = 0;
    const std::string name =
        "fork-fd-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
    return {"sm://" + name, "unix:///tmp/weft-" + name, "tcp://127.0.0.1:0"};
}

// A server and its client after a call and a transfer: the transport has opened all descriptors.
struct Pair {
    explicit Pair(const std::string& uri)
        : server(Runtime::create().value()), client(Runtime::create().value()) {
        is_good = service.start(*server, uri, Access::read).ok();
        if (!is_good) return;
        channel = client->connect(server->addresses().front()).value();
        std::string reply;
        is_good = call(channel, reply);
        if (!is_good || (uri.starts_with("sm:") && !test::has_private_memory())) return;
        is_good = get(channel, RegionRef::decode(as_bytes(reply)).value());
    }
    ~Pair() {
        channel = Channel();
        service.region = Region();
    }
    RegionServer service{100'000, std::byte{0}};
    std::optional<Runtime> server, client;
    Channel channel;
    bool is_good = false;
};

TEST_CASE("a forked child keeps no descriptor of a runtime") {
    for (const std::string& uri : uris()) {
        INFO(uri);
        const auto before = special_descriptors();
        const Pair pair(uri);
        REQUIRE(pair.is_good);
        CHECK(descriptors_besides(before) > 0);
        CHECK(test::end_of_child([&] { return descriptors_besides(before); }) == 0);
    }
}

// Forks repeatedly while a thread runs `churn`.
void check_none_is_kept(int forks, const std::function<bool()>& churn) {
    const auto before = special_descriptors();
    std::atomic<bool> over{false}, good{true};
    std::thread thread([&] {
        while (!over && good) good = churn();
    });
    int kept = 0;
    for (int i = 0; i < forks && kept == 0; ++i) {
        kept = test::end_of_child([&] { return descriptors_besides(before); });
    }
    over = true;
    thread.join();
    CHECK(kept == 0);
    CHECK(good);
}

TEST_CASE("a forked child keeps no descriptor that a thread was opening or closing at the fork") {
    check_none_is_kept(150, [] {
        return bool(base::UniqueFd::close_on_fork(
            [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }));
    });
}

TEST_CASE("a forked child that closes its parent's UniqueFd keeps its own descriptor") {
    auto fd = base::UniqueFd::close_on_fork(
        [] { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); });
    REQUIRE(fd);
    CHECK(test::end_of_child([&] {
              const int number = fd.get();
              if (::dup2(STDOUT_FILENO, number) != number) return 1;
              fd.reset();
              return ::fcntl(number, F_GETFD) >= 0 ? 0 : 2;
          }) == 0);
}

TEST_CASE("a forked child keeps no descriptor of runtimes that begin and end at the fork") {
    for (std::size_t kind = 0; kind < uris().size(); ++kind) {
        INFO(uris()[kind]);
        check_none_is_kept(100, [&] { return Pair(uris()[kind]).is_good; });
    }
}

}  // namespace
}  // namespace weft::fork_descriptors
