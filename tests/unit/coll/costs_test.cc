#include "coll/costs.h"

#include <set>

#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/group_rig.h"

using namespace weft;
using coll::Cost;
using coll::CostMeter;
using coll::Costs;
using coll::Tree;

namespace {

constexpr std::uint32_t most = ~std::uint32_t{0};

Cost cost_of(Duration busy, Duration trip) {
    return {static_cast<std::uint32_t>(busy.count()), static_cast<std::uint32_t>(trip.count())};
}

// `members` leaves reply: the first after `first`, the last after `last`, counted from the
// requests.
Cost measured(std::uint32_t members, Duration first, Duration last) {
    CostMeter one;
    for (std::uint32_t i = 0; i < members; ++i) one.on_sent(TimePoint{} + 1s);
    one.on_reply(TimePoint{} + 1s + first);
    for (std::uint32_t i = 1; i < members; ++i) one.on_reply(TimePoint{} + 1s + last);
    return one.snapshot();
}

}  // namespace

// ---- one collective -----------------------------------------------------------------------------

TEST_CASE("costs: replies of two leaves give the cost of a request and of a round trip") {
    CHECK(measured(5, 6us, 10us) == cost_of(1us, 6us));
    CHECK(measured(2, 6us, 10us) == cost_of(4us, 6us));
    CHECK_FALSE(measured(1, 6us, 6us).is_known());
    CHECK(measured(2, 0us, 0us) == Cost{1, 1});  // No time, but a known cost.
    CHECK(measured(2, 100s, 300s) == Cost{most, most});
}

TEST_CASE("costs: a rank without leaves reports the costs of its children until it measures") {
    CostMeter one;
    CHECK_FALSE(one.snapshot().is_known());
    one.add_reported({});  // No cost.
    CHECK_FALSE(one.snapshot().is_known());
    one.add_reported({10, 100});
    one.add_reported({20, 300});
    CHECK(one.snapshot() == Cost{15, 200});
    for (int i = 0; i < 6; ++i) one.add_reported({most, most});
    CHECK(one.snapshot().is_known());
    one.on_sent(TimePoint{});
    one.on_reply(TimePoint{} + 6us);
    one.on_reply(TimePoint{} + 8us);
    CHECK(one.snapshot() == cost_of(2us, 6us));
}

// ---- many ---------------------------------------------------------------------------------------

TEST_CASE("costs: without samples, the tree assumes a latency of five sends") {
    Costs costs;
    costs.note(64, {});
    CHECK_FALSE(costs.has_samples(64));
    CHECK(costs.tree(100, 64) == Tree{});
    CHECK(costs.tree(100, 4 << 20).latency == 4);  // Large messages keep their sender busy.
}

TEST_CASE("costs: the tree follows the measured costs, for messages of that size only") {
    Costs costs;
    // A send takes 1 us, the trip another 4, and so does the trip back.
    for (int i = 0; i < 100; ++i) costs.note(64, cost_of(1us, 10us));
    CHECK(costs.tree(100, 64).latency == 16);
    CHECK(costs.tree(100, 1) == costs.tree(100, 64));
    CHECK(costs.tree(100, 65) == Tree{});
    for (int i = 0; i < 100; ++i) costs.note(64, cost_of(1us, 200us));  // A long trip.
    CHECK(costs.tree(100, 64).latency == 256);
    for (int i = 0; i < 100; ++i) costs.note(64, cost_of(200us, 2us));  // Expensive sends.
    CHECK(costs.tree(100, 64).latency == 1);
}

TEST_CASE("costs: any values that peers report give a valid tree") {
    std::set<std::uint16_t> latencies;
    for (const std::uint32_t busy : {0u, 1u, 1000u, most}) {
        for (const std::uint32_t trip : {0u, 1u, 1000u, most}) {
            for (const int times : {1, 30}) {
                Costs costs;
                for (int i = 0; i < times; ++i) costs.note(64, {busy, trip});
                for (int i = 0; i < times; ++i) costs.note(64, {trip, busy});
                INFO(busy << " and " << trip << ", " << times << " times");
                CHECK(costs.tree(100, 64).is_possible({1, 1 << 20}));
                latencies.insert(costs.tree(100, 64).latency);
            }
            CHECK(coll::tree_for(busy, trip).is_possible({1, 1 << 20}));
            CHECK(coll::tree_for(busy, trip / 2.0 - busy).is_possible({1, 1 << 20}));
        }
    }
    CHECK(latencies.size() > 1);
}

TEST_CASE("costs: few ranks get a flat tree, whatever the costs") {
    const Costs costs;
    CHECK(costs.tree(Costs::few, 64).shape == coll::Shape::flat);
    CHECK(costs.tree(Costs::few + 1, 64).shape == coll::Shape::greedy);
}

TEST_CASE("costs: one odd sample changes little, and a drift is followed in few steps") {
    Costs costs;
    for (int i = 0; i < 100; ++i) costs.note(4096, cost_of(1us, 24us));
    const Tree before = costs.tree(100, 4096);
    costs.note(4096, cost_of(1500ns, 25us));
    CHECK(costs.tree(100, 4096) == before);
    costs.note(4096, cost_of(1us, 25us));
    // The latency grows fourfold in small steps: at most nine trees of a quarter of an octave each.
    std::set<std::uint16_t> latencies;
    for (int i = 0; i < 2000; ++i) {
        costs.note(4096, cost_of(1us, 24us + i * 36ns));
        latencies.insert(costs.tree(100, 4096).latency);
    }
    CHECK(latencies.size() >= 6);
    CHECK(latencies.size() <= 9);
    CHECK(costs.tree(100, 4096).latency > before.latency * 3);
}

TEST_CASE("costs: a tree is within an eighth of the measured cost and does not oscillate") {
    for (double wanted = 1; wanted <= coll::latency_max; wanted *= 1.03) {
        Costs costs;
        const double trip = 2 * (1 + wanted / 4) * 1000;
        const auto note = [&](double factor) {
            costs.note(64, {1000, static_cast<std::uint32_t>(trip * factor)});
            return costs.tree(100, 64).latency;
        };
        const std::uint16_t first = note(1);
        INFO("latency " << wanted);
        CHECK(first <= std::max(wanted + 1, wanted * 1.125));
        CHECK(first >= std::min(wanted - 1, wanted / 1.125));
        std::set<std::uint16_t> latencies{first};
        for (int i = 0; i < 40; ++i) latencies.insert(note(i % 2 == 0 ? 1.05 : 0.95));
        if (wanted > 4) CHECK(latencies.size() == 1);
    }
}

// ---- a group ------------------------------------------------------------------------------------

TEST_CASE("costs: the caller measures costs, however many levels the tree has") {
    for (const std::uint32_t n : {12u, 40u, 200u}) {
        for (const std::uint32_t caller : {0u, n / 2}) {
            INFO(n << " ranks, called by " << caller);
            test::GroupRig rig(n);
            const Group group = rig.group(static_cast<int>(caller));
            coll::Engine& engine = impl_of(*rig.sim.runtimes[caller]).collectives;
            const Costs& costs = engine.joined(rig.view().name())->costs;
            CHECK(costs.tree(n, 1) == Tree{});
            for (int i = 0; i < 20; ++i) REQUIRE(rig.call(group, "x", {.timeout = 5s}).status.ok());
            CHECK(costs.has_samples(1));
            CHECK_FALSE(costs.has_samples(1 << 20));
            CHECK_FALSE(costs.tree(n, 1) == Tree{});
            CHECK(costs.tree(n, 1).is_possible({1, n}));
        }
    }
}

TEST_CASE("costs: requests repeated with members by name are not measured") {
    test::GroupRig rig(5);
    for (int rank = 1; rank < 5; ++rank) {
        REQUIRE(rig.group(rank).install(rig.view(2)).ok());
    }
    const Group group = rig.group(0);
    coll::Engine& engine = impl_of(*rig.sim.runtimes[0]).collectives;
    const Costs& costs = engine.joined(rig.view().name())->costs;
    const GroupOutcome outcome = rig.call(group, "x", {.timeout = 5s});
    CHECK(outcome.status.ok());
    CHECK(rig.services[4].received.size() == 1);
    CHECK_FALSE(costs.has_samples(1));
    rig.sim.run_for(3s);
    CHECK(group.view().epoch() == 1);  // Its program has not installed the later view.
    REQUIRE(group.install(rig.view(2)).ok());
    CHECK(rig.call(group, "x", {.timeout = 5s}).status.ok());
    CHECK(costs.has_samples(1));
}
