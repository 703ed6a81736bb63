// A member that drains finishes what it has begun, and gives outcomes to the peers that ask.
#include <optional>

#include "support/group_rig.h"

using namespace weft;
using test::GroupRig;

namespace coll_drain {

void drain(Runtime& runtime) {
    auto& node = runtime.node();
    node.server.drain();
    node.collectives.drain();
}

GroupCallOptions in_a_row(Duration timeout) {
    GroupCallOptions options{.timeout = timeout};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    return options;
}

TEST_CASE("a member that drains gives the outcome of a collective that its handler answers") {
    GroupRig rig(7);
    rig.answer = [](std::uint32_t rank, ByteView) {
        return std::vector<std::byte>(1, static_cast<std::byte>(rank));
    };
    const std::uint32_t drains = GENERATE(0u, 1u, 2u);
    CAPTURE(drains);
    // Its handler, or that of one below it, takes so long that its parent has been told so far.
    const std::uint32_t slow = GENERATE(1u, 2u);
    rig.services[slow].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::tell_method, BodyWriter::of(as_bytes("x")), in_a_row(60s),
                             [&](GroupOutcome all) { outcome = std::move(all); });
    rig.sim.run_for(2s);
    REQUIRE(rig.services[slow].held.size() == 1);
    Runtime& draining = *rig.sim.runtimes[drains];
    drain(draining);
    rig.answer_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    INFO(outcome->status.to_string());
    CHECK(outcome->status.ok());
    for (const RankOutcome& one : outcome->ranks) {
        CHECK(one.reply == rig.answer(one.rank, {}));
    }
    CHECK(draining.node().collectives.owed() == 0);
    // Of a new one nothing is done.
    rig.services[slow].hold = false;
    const GroupOutcome next = rig.call(rig.group(-1), "y", in_a_row(10s));
    for (const RankOutcome& one : next.ranks) {
        INFO("rank " << one.rank << ": " << one.status.to_string());
        CHECK(one.status.ok() == (one.rank != drains));
        if (one.rank != drains) continue;
        CHECK(one.status.code() == Code::unavailable);
        CHECK(one.status.effect() == Effect::none);
    }
}

TEST_CASE("an outcome is owed to a parent that was told so far, until it asks or does not come") {
    GroupRig rig(2);
    rig.services[0].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::tell_method, BodyWriter::of(as_bytes("x")), {.timeout = 60s},
                             [&](GroupOutcome all) { outcome = std::move(all); });
    coll::Engine& engine = rig.sim.runtimes[0]->node().collectives;
    // The client waits a moment before it asks for the rest.
    REQUIRE(rig.sim.run_until([&] { return rig.services[0].held.size() == 1; }));
    const auto& server = rig.sim.runtimes[0]->node().server;
    REQUIRE(rig.sim.run_until([&] { return server.executing() == 1; }, 10s));
    SECTION("it asks") {
        rig.answer_held();
        CHECK(engine.owed() == 1);
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
        CHECK(outcome->status.ok());
    }
    SECTION("it does not come") {
        rig.sim.runtimes.pop_back();
        rig.answer_held();
        CHECK(engine.owed() == 1);
        rig.sim.run_for(4s);
    }
    CHECK(engine.owed() == 0);
}

TEST_CASE("the end of a rank waits for a collective that runs at a rank below it") {
    GroupRig rig(3);
    rig.answer = [](std::uint32_t rank, ByteView) {
        return std::vector<std::byte>(1, static_cast<std::byte>(rank));
    };
    rig.services[1].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::tell_method, BodyWriter::of(as_bytes("x")), in_a_row(60s),
                             [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return rig.services[1].held.size() == 1; }));
    auto& node = rig.sim.runtimes[0]->node();
    node.begin_drain();
    const auto is_drained = [&] { return node.left_to_drain().first == 0; };
    // Its parent is told so far each second, and asks for the rest a moment later.
    CHECK_FALSE(rig.sim.run_until(is_drained, 4s));
    rig.answer_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    CHECK(outcome->status.ok());
    for (const RankOutcome& one : outcome->ranks) CHECK(one.reply == rig.answer(one.rank, {}));
    CHECK(rig.sim.run_until(is_drained, 100ms));
}

TEST_CASE("the end of a rank waits for the parent that replaces one that died") {
    GroupRig rig(7);
    rig.services[2].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::tell_method, BodyWriter::of(as_bytes("x")), in_a_row(60s),
                             [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return rig.services[2].held.size() == 1; }));
    auto& node = rig.sim.runtimes[1]->node();
    node.begin_drain();
    REQUIRE(rig.sim.run_until([&] { return node.server.executing() == 0; }, 4s));
    rig.sim.kill("s0");
    const auto is_drained = [&] { return node.left_to_drain().first == 0; };
    CHECK_FALSE(rig.sim.run_until(is_drained, 8s));
    rig.answer_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    for (const RankOutcome& one : outcome->ranks) {
        INFO("rank " << one.rank << ": " << one.status.to_string());
        CHECK(one.status.ok() == (one.rank != 0));
    }
    CHECK(rig.sim.run_until(is_drained, 5s));
}

TEST_CASE("a gathering does not keep a member that drains: its program does not come any more") {
    GroupRig rig(3);
    std::vector<GroupOutcome> outcomes;
    for (const int rank : {0, 1}) {
        rig.group(rank).meet("start", {}, {.timeout = 60s},
                             [&](GroupOutcome all) { outcomes.push_back(std::move(all)); });
    }
    rig.sim.run_for(1s);
    Runtime& draining = *rig.sim.runtimes[2];
    CHECK(draining.node().server.executing() > 0);
    drain(draining);
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == 2; }, 10s));
    for (const GroupOutcome& outcome : outcomes) {
        CHECK(outcome.status.code() == Code::unavailable);
        REQUIRE(outcome.ranks.size() == 3);
        CHECK(outcome.ranks[2].status.effect() == Effect::none);
    }
    CHECK(draining.node().server.executing() == 0);
}

}  // namespace coll_drain
