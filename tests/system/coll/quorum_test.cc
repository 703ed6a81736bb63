// What a collective still delivers after its policy has completed it, and what the end of its
// runtime waits for.
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include <weft/runtime.h>

#include "support/catch.h"
#include "support/group_rig.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace coll_quorum {

constexpr MethodId push_method("test.Rest/Push");

struct CountingService final : Service {
    std::atomic<int> times{0};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(push_method,
                      [this](Call call) {
                          ++times;
                          call.reply({});
                      },
                      {.collective = true});
    }
};

// Three members, one of which accepts no connection until it is turned, and a client outside.
struct RestRig {
    explicit RestRig(Duration drain = 60s) {
        std::vector<Member> members;
        for (std::uint32_t rank = 0; rank < 3; ++rank) {
            const bool is_late = rank == 2;
            servers.push_back(Runtime::create({.manual = is_late}).value());
            REQUIRE(servers[rank].serve(services[rank], "tcp://127.0.0.1:0").ok());
            members.push_back({rank, servers[rank].addresses()});
        }
        view = GroupView::make("rest", 1, std::move(members)).value();
        for (std::uint32_t rank = 0; rank < 3; ++rank)
            REQUIRE(servers[rank].join(*view, rank).ok());
        client.emplace(Runtime::create({.drain_timeout = drain}).value());
    }
    GroupOutcome push(GroupCallOptions options) {
        options.topology = {.shape = Topology::Shape::flat};
        std::promise<GroupOutcome> done;
        client->group(*view).value().collective(
            push_method, BodyWriter::of({}), options,
            [&](GroupOutcome outcome) { done.set_value(std::move(outcome)); });
        return done.get_future().get();
    }

    std::array<CountingService, 3> services;
    std::vector<Runtime> servers;
    std::optional<GroupView> view;
    std::optional<Runtime> client;
};

TEST_CASE("a collective with a quorum reaches the remaining member although the client ends") {
    RestRig rig;
    const GroupOutcome outcome = rig.push({.timeout = 60s, .policy = Policy::quorum});
    REQUIRE(outcome.status.ok());
    CHECK(outcome.ranks[2].status.code() == Code::unknown);
    std::atomic<bool> ended{false};
    std::thread end([&] {
        rig.client.reset();
        ended = true;
    });
    // No server replies yet: a client that did not wait would have ended by now.
    const TimePoint until = std::chrono::steady_clock::now() + 300ms;
    while (!ended && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK_FALSE(ended);
    const bool is_delivered =
        rig.servers[2].turn_until([&] { return rig.services[2].times > 0; }, test_timeout);
    CHECK(is_delivered);
    CHECK(rig.servers[2].turn_until([&] { return ended.load(); }, test_timeout));
    end.join();
    CHECK(rig.services[2].times == 1);
}

TEST_CASE("a client that ends waits for deliveries of its collectives until drain_timeout") {
    RestRig rig(200ms);
    REQUIRE(rig.push({.timeout = 60s, .policy = Policy::quorum}).status.ok());
    const auto begun = std::chrono::steady_clock::now();
    rig.client.reset();
    const Duration took = std::chrono::steady_clock::now() - begun;
    CHECK(took >= 200ms);
    CHECK(took < test_timeout);
}

TEST_CASE("a collective begun long after run() returned is delivered before its runtime ends") {
    constexpr Duration drain = 1s;
    RestRig rig(drain);
    rig.client->stop();
    REQUIRE(rig.client->run().ok());
    // The drain time of run() has passed.
    const TimePoint over = std::chrono::steady_clock::now() + drain + 100ms;
    while (std::chrono::steady_clock::now() < over) std::this_thread::yield();
    REQUIRE(rig.push({.timeout = 60s, .policy = Policy::quorum}).status.ok());
    std::atomic<bool> ended{false};
    std::thread end([&] {
        rig.client.reset();
        ended = true;
    });
    // A client that did not wait would have ended by now.
    const TimePoint until = std::chrono::steady_clock::now() + drain / 5;
    while (!ended && std::chrono::steady_clock::now() < until) std::this_thread::yield();
    CHECK_FALSE(ended);
    CHECK(rig.servers[2].turn_until([&] { return ended.load(); }, test_timeout));
    end.join();
    CHECK(rig.services[2].times == 1);
}

TEST_CASE("a collective with abandon_rest cancels the rest, and the end waits for nothing") {
    RestRig rig;
    const GroupOutcome outcome =
        rig.push({.timeout = 60s, .policy = Policy::quorum, .abandon_rest = true});
    REQUIRE(outcome.status.ok());
    rig.client.reset();
    rig.servers[2].turn_until([&] { return rig.services[2].times > 0; }, 50ms);
    CHECK(rig.services[2].times == 0);
}

TEST_CASE("handlers are cancelled when a collective with a quorum abandons the rest") {
    GroupRig rig(5);
    rig.services[4].hold = true;
    const GroupOutcome outcome =
        rig.call(rig.group(-1), "x", {.policy = Policy::quorum, .abandon_rest = true});
    CHECK(outcome.status.ok());
    rig.sim.run_for(100ms);
    CHECK(rig.services[4].was_cancelled());
    CHECK(rig.running() == 0);
}

TEST_CASE("a drain counts the collectives of this runtime that still deliver") {
    GroupRig rig(5);
    rig.services[4].hold = true;
    Runtime& client = *rig.client;
    CHECK(rig.call(rig.group(-1), "x", {.timeout = 60s, .policy = Policy::quorum}).status.ok());
    CHECK(impl_of(client).collectives.delivering() == 1);
    rig.reply_held();
    rig.sim.run_for(1s);
    CHECK(impl_of(client).collectives.delivering() == 0);
}

}  // namespace coll_quorum
