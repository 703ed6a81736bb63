// A member that drains finishes the collectives it has begun and delivers outcomes to the peers
// that request them.
#include <optional>

#include "support/group_rig.h"

using namespace weft;
using test::GroupRig;

namespace coll_drain {

void drain(Runtime& runtime) {
    node_of(runtime).server.drain();
    impl_of(runtime).collectives.drain();
}

GroupCallOptions in_a_row(Duration timeout) {
    GroupCallOptions options{.timeout = timeout};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    return options;
}

TEST_CASE("a member that drains delivers the outcome of a collective that its handler completes") {
    GroupRig rig(7);
    rig.answer = [](std::uint32_t rank, ByteView) {
        return std::vector<std::byte>(1, static_cast<std::byte>(rank));
    };
    const std::uint32_t drains = GENERATE(0u, 1u, 2u);
    CAPTURE(drains);
    // Its handler, or that of a rank below it, runs so long that a partial reply has been sent to
    // its parent.
    const std::uint32_t slow = GENERATE(1u, 2u);
    rig.services[slow].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::record_method, BodyWriter::of(as_bytes("x")), in_a_row(60s),
                             [&](GroupOutcome all) { outcome = std::move(all); });
    rig.sim.run_for(2s);
    REQUIRE(rig.services[slow].held.size() == 1);
    Runtime& draining = *rig.sim.runtimes[drains];
    drain(draining);
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    INFO(outcome->status.to_string());
    CHECK(outcome->status.ok());
    for (const RankOutcome& one : outcome->ranks) {
        CHECK(one.reply == rig.answer(one.rank, {}));
    }
    CHECK(impl_of(draining).collectives.parents_expected() == 0);
    // A new collective is refused.
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

TEST_CASE("a partial reply keeps an outcome pending until its parent requests it or disconnects") {
    GroupRig rig(2);
    rig.services[0].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::record_method, BodyWriter::of(as_bytes("x")), {.timeout = 60s},
                             [&](GroupOutcome all) { outcome = std::move(all); });
    coll::Engine& engine = impl_of(*rig.sim.runtimes[0]).collectives;
    // After a partial reply the client waits a moment before it requests the rest.
    REQUIRE(rig.sim.run_until([&] { return rig.services[0].held.size() == 1; }));
    const auto& server = node_of(*rig.sim.runtimes[0]).server;
    REQUIRE(rig.sim.run_until([&] { return server.executing() == 1; }, 10s));
    SECTION("the parent requests it") {
        rig.reply_held();
        CHECK(engine.parents_expected() == 1);
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
        CHECK(outcome->status.ok());
    }
    SECTION("the parent disconnects") {
        rig.sim.runtimes.pop_back();
        rig.reply_held();
        CHECK(engine.parents_expected() == 1);
        rig.sim.run_for(4s);
    }
    CHECK(engine.parents_expected() == 0);
}

TEST_CASE("the end of a rank waits for a collective that runs on a rank below it") {
    GroupRig rig(3);
    rig.answer = [](std::uint32_t rank, ByteView) {
        return std::vector<std::byte>(1, static_cast<std::byte>(rank));
    };
    rig.services[1].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::record_method, BodyWriter::of(as_bytes("x")), in_a_row(60s),
                             [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return rig.services[1].held.size() == 1; }));
    auto& impl = impl_of(*rig.sim.runtimes[0]);
    impl.begin_drain();
    const auto is_drained = [&] { return impl.left_to_drain().first == 0; };
    // Its parent gets a partial reply each second, and requests the rest a moment later.
    CHECK_FALSE(rig.sim.run_until(is_drained, 4s));
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    CHECK(outcome->status.ok());
    for (const RankOutcome& one : outcome->ranks) CHECK(one.reply == rig.answer(one.rank, {}));
    CHECK(rig.sim.run_until(is_drained, 100ms));
}

TEST_CASE("the end of a rank waits for the parent that replaces a dead one") {
    GroupRig rig(7);
    rig.services[2].hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::record_method, BodyWriter::of(as_bytes("x")), in_a_row(60s),
                             [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return rig.services[2].held.size() == 1; }));
    auto& impl = impl_of(*rig.sim.runtimes[1]);
    impl.begin_drain();
    REQUIRE(rig.sim.run_until([&] { return impl.node.server.executing() == 0; }, 4s));
    rig.sim.kill("s0");
    const auto is_drained = [&] { return impl.left_to_drain().first == 0; };
    CHECK_FALSE(rig.sim.run_until(is_drained, 8s));
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    for (const RankOutcome& one : outcome->ranks) {
        INFO("rank " << one.rank << ": " << one.status.to_string());
        CHECK(one.status.ok() == (one.rank != 0));
    }
    CHECK(rig.sim.run_until(is_drained, 5s));
}

TEST_CASE("a member that drains does not wait for a gather that its program has not joined") {
    GroupRig rig(3);
    std::vector<GroupOutcome> outcomes;
    for (const int rank : {0, 1}) {
        rig.group(rank).all_gather("start", {}, {.timeout = 60s},
                                   [&](GroupOutcome all) { outcomes.push_back(std::move(all)); });
    }
    rig.sim.run_for(1s);
    Runtime& draining = *rig.sim.runtimes[2];
    CHECK(node_of(draining).server.executing() > 0);
    drain(draining);
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == 2; }, 10s));
    for (const GroupOutcome& outcome : outcomes) {
        CHECK(outcome.status.code() == Code::unavailable);
        REQUIRE(outcome.ranks.size() == 3);
        CHECK(outcome.ranks[2].status.effect() == Effect::none);
    }
    CHECK(node_of(draining).server.executing() == 0);
}

}  // namespace coll_drain
