// The resolver joins concurrent questions for one host and caches a failure for a while.
#include "na/resolution.h"

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/no_more_threads.h"

using namespace weft;
using namespace weft::na;

namespace {

std::atomic<int> asked{0};
std::atomic<bool> may_answer{false};

// Blocks until `may_answer`; hosts with names that begin with "no" do not exist.
Resolver::Answer look_up(const std::string& host) {
    ++asked;
    may_answer.wait(false);
    if (host.starts_with("no")) return {{}, "there is none"};
    return {{*SocketName::from_numeric("192.0.2.1", 0)}, {}};
}

Address host(std::string name, std::uint16_t port) {
    return {.scheme = "tcp", .name = "", .host = std::move(name), .port = port};
}

struct Asked {
    Asked() {
        asked = 0;
        may_answer = false;
    }
    static void let_answer() {
        may_answer = true;
        may_answer.notify_all();
    }
};

}  // namespace

TEST_CASE("resolver: concurrent questions for one host share one lookup") {
    const Asked begin;
    Resolver resolver(&look_up);
    std::vector<std::unique_ptr<Resolution>> all;
    for (std::uint16_t port = 1; port <= 100; ++port) {
        all.push_back(Resolution::start(host("host", port), TimePoint(), resolver));
    }
    const auto other = Resolution::start(host("other", 7), TimePoint(), resolver);
    CHECK(!all[0]->done());
    CHECK(resolver.size(TimePoint()) == 2);
    Asked::let_answer();
    for (std::uint16_t port = 1; port <= 100; ++port) {
        all[port - 1u]->wait();
        CHECK(all[port - 1u]->answer()->text() == "192.0.2.1:" + std::to_string(port));
    }
    other->wait();
    CHECK(asked == 2);
    // Successes are not cached, because the answer may have changed.
    CHECK(resolver.size(TimePoint()) == 0);
    Resolution::start(host("host", 1), TimePoint(), resolver)->wait();
    CHECK(asked == 3);
}

TEST_CASE("resolver: a failure is cached for a while, then looked up again") {
    const Asked begin;
    Asked::let_answer();
    Resolver resolver(&look_up, 1s);
    const TimePoint start{};
    Resolution::start(host("nowhere", 1), start, resolver)->wait();
    for (int i = 0; i < 10; ++i) {
        const auto one = Resolution::start(host("nowhere", 1), start + i * 111ms, resolver);
        REQUIRE(one->done());
        const Status why = one->answer().status();
        CHECK(why.code() == Code::unavailable);
        CHECK(why.text() == "can't resolve 'nowhere': there is none");
    }
    CHECK(asked == 1);
    CHECK(resolver.size(start + 1s - 1ns) == 1);
    CHECK(resolver.size(start + 1s) == 0);
    Resolution::start(host("nowhere", 1), start + 1s, resolver)->wait();
    CHECK(asked == 2);
}

TEST_CASE("resolver: a lack of threads fails the question and is not cached") {
    const Asked begin;
    Asked::let_answer();
    Resolver resolver(&look_up, 1h);
    {
        const test::NoMoreThreads none;
        const auto one = Resolution::start(host("host", 1), TimePoint(), resolver);
        REQUIRE(one->done());
        const Status why = one->answer().status();
        CHECK(why.code() == Code::resource_exhausted);
        CHECK(why.text().find("no thread") != std::string::npos);
        CHECK(why.text().find("ulimit -u") != std::string::npos);
    }
    const auto one = Resolution::start(host("host", 1), TimePoint(), resolver);
    one->wait();
    CHECK(one->answer().ok());
}

TEST_CASE("resolver: a lookup completes safely after its callers and its resolver are destroyed") {
    const Asked begin;
    auto question = [] {
        Resolver resolver(&look_up);
        Resolution::start(host("gone", 1), TimePoint(), resolver);
        return resolver.resolve("gone", TimePoint());
    }();
    Asked::let_answer();
    question->done.wait(false);
    CHECK(asked == 1);
}

static Address named(const std::string& name) {
    Address address = host(name, 1);
    address.named_by_peer = true;
    return address;
}

TEST_CASE("resolver: host names of peers use two threads, and leave the others to the program") {
    const Asked begin;
    Resolver resolver(&look_up);
    std::vector<std::unique_ptr<Resolution>> of_peers;
    for (std::size_t i = 0; i < Resolver::peer_waiting_max; ++i) {
        of_peers.push_back(
            Resolution::start(named("invented" + std::to_string(i)), TimePoint(), resolver));
    }
    while (asked < 2) std::this_thread::yield();
    std::vector<std::unique_ptr<Resolution>> own;
    for (int i = 0; i < 100; ++i) {
        own.push_back(Resolution::start(host("own" + std::to_string(i), 1), TimePoint(), resolver));
    }
    // A name that the program asks for, too, does not wait behind those of peers.
    const auto both = Resolution::start(host("invented63", 1), TimePoint(), resolver);
    while (asked < 8) std::this_thread::yield();
    CHECK(resolver.threads() == Resolver::threads_max);
    Asked::let_answer();
    for (const auto& one : own) one->wait();
    both->wait();
    for (const auto& one : of_peers) one->wait();
    CHECK(asked == 164);
}

TEST_CASE("resolver: host names of peers beyond the waiting limit are refused") {
    const Asked begin;
    Resolver resolver(&look_up);
    std::vector<std::unique_ptr<Resolution>> open;
    const auto add = [&] {
        const std::string name = "invented" + std::to_string(open.size());
        open.push_back(Resolution::start(named(name), TimePoint(), resolver));
    };
    add(), add();
    while (asked < 2) std::this_thread::yield();
    while (open.size() < 2 + Resolver::peer_waiting_max) add();
    add();
    REQUIRE(open.back()->done());
    const Status full = open.back()->answer().status();
    CHECK(full.code() == Code::resource_exhausted);
    CHECK(full.text().find("64 host names of peers") != std::string::npos);
    // A refused name is not cached, and the program's own names are not affected.
    CHECK_FALSE(Resolution::start(host("own", 1), TimePoint(), resolver)->done());
    open.resize(2);
    add();
    CHECK_FALSE(open.back()->done());
    Asked::let_answer();
    open.back()->wait();
    CHECK(asked <= 4);  // A question without waiting callers is dropped.
}

TEST_CASE("resolver: a peer's host name that resolves to loopback is refused") {
    Resolver resolver([](const std::string&) {
        return Resolver::Answer{{*SocketName::from_numeric("127.0.0.1", 0)}, {}};
    });
    const auto of_peer = Resolution::start(named("rebound"), TimePoint(), resolver);
    of_peer->wait();
    CHECK(of_peer->answer().status().text().find("loopback") != std::string::npos);
    const auto own = Resolution::start(host("rebound", 1), TimePoint(), resolver);
    own->wait();
    CHECK(own->answer().ok());
}

TEST_CASE("resolver: a peer's numeric spelling of loopback or of any address is refused") {
    for (const char* spelling : {"2130706433", "0x7f000001", "127.1", "0177.0.0.1", "0", "0x0"}) {
        INFO(spelling);
        CHECK_FALSE(numeric_name(host(spelling, 1)));
        const auto of_peer = Resolution::start(named(spelling), TimePoint(), Resolver::system());
        of_peer->wait();
        CHECK_FALSE(of_peer->answer().ok());
    }
}
