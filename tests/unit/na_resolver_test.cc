// A question to the resolver is asked once at a time, and a failure remembered for a while.
#include "na/resolution.h"

#include <atomic>
#include <vector>

#include "support/catch.h"
#include "support/no_more_threads.h"

using namespace weft;
using namespace weft::na;

namespace {

std::atomic<int> asked{0};
std::atomic<bool> may_answer{false};

// Blocks until it may; hosts whose name begins with "no" are not there.
Resolver::Answer look_up(const std::string& host) {
    ++asked;
    may_answer.wait(false);
    if (host.starts_with("no")) return {{}, "there is none"};
    return {*SocketName::from_numeric("192.0.2.1", 0), {}};
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

TEST_CASE("resolver: who asks for a host at the same time shares one question") {
    const Asked begin;
    Resolver resolver(&look_up);
    std::vector<std::unique_ptr<Resolution>> all;
    for (std::uint16_t port = 1; port <= 100; ++port) {
        all.push_back(Resolution::start("host", port, TimePoint(), resolver));
    }
    const auto other = Resolution::start("other", 7, TimePoint(), resolver);
    CHECK(!all[0]->done());
    CHECK(resolver.size(TimePoint()) == 2);
    Asked::let_answer();
    for (std::uint16_t port = 1; port <= 100; ++port) {
        all[port - 1u]->wait();
        CHECK(all[port - 1u]->answer()->text() == "192.0.2.1:" + std::to_string(port));
    }
    other->wait();
    CHECK(asked == 2);
    // What was found is asked for again: it may have changed.
    CHECK(resolver.size(TimePoint()) == 0);
    Resolution::start("host", 1, TimePoint(), resolver)->wait();
    CHECK(asked == 3);
}

TEST_CASE("resolver: a failure is remembered, and then asked for again") {
    const Asked begin;
    Asked::let_answer();
    Resolver resolver(&look_up, 1s);
    const TimePoint start{};
    Resolution::start("nowhere", 1, start, resolver)->wait();
    for (int i = 0; i < 10; ++i) {
        const auto one = Resolution::start("nowhere", 1, start + i * 111ms, resolver);
        REQUIRE(one->done());
        const Status why = one->answer().status();
        CHECK(why.code() == Code::unavailable);
        CHECK(why.text() == "can't resolve 'nowhere': there is none");
    }
    CHECK(asked == 1);
    CHECK(resolver.size(start + 1s - 1ns) == 1);
    CHECK(resolver.size(start + 1s) == 0);
    Resolution::start("nowhere", 1, start + 1s, resolver)->wait();
    CHECK(asked == 2);
}

TEST_CASE("resolver: a lack of threads fails the question and is not remembered") {
    const Asked begin;
    Asked::let_answer();
    Resolver resolver(&look_up, 1h);
    {
        const test::NoMoreThreads none;
        const auto one = Resolution::start("host", 1, TimePoint(), resolver);
        REQUIRE(one->done());
        CHECK(one->answer().status().text().find("no thread") != std::string::npos);
    }
    const auto one = Resolution::start("host", 1, TimePoint(), resolver);
    one->wait();
    CHECK(one->answer().ok());
}

TEST_CASE("resolver: an answer that nobody waits for any more hurts nobody") {
    const Asked begin;
    auto question = [] {
        Resolver resolver(&look_up);
        Resolution::start("gone", 1, TimePoint(), resolver);
        return resolver.ask("gone", TimePoint());
    }();
    Asked::let_answer();
    question->done.wait(false);
    CHECK(asked == 1);
}
