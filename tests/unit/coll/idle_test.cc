// Collectives after idle time: the readings of other ranks' clocks are old by then.
#include <optional>

#include "support/group_rig.h"

using namespace weft;
using test::GroupRig;

namespace coll_idle {

GroupCallOptions in_a_row(Duration timeout) {
    GroupCallOptions options{.timeout = timeout};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    return options;
}

TEST_CASE("a collective has its whole time on each rank when the group was idle for long") {
    const Duration idle = GENERATE(Duration(1s), 7s, 60s, 400s, 12000s);
    const Duration timeout = GENERATE(Duration(100ms), 1s, 30s, 500s);
    CAPTURE(idle.count(), timeout.count());
    GroupRig rig(15);
    const auto options = in_a_row(timeout);
    const Group group = rig.group(-1);
    REQUIRE(rig.call(group, "x", options).status.ok());
    rig.sim.run_for(idle);
    for (auto& server : rig.services) server.hold = true;
    std::optional<GroupOutcome> outcome;
    group.collective(test::record_method, BodyWriter::of(as_bytes("y")), options,
                     [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.all_hold());
    for (const auto& server : rig.services) {
        INFO("rank " << server.rank);
        // Each hop reserves a part of the time for the replies.
        CHECK(server.held.back().time_left() >= timeout / 4 * 3);
    }
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }, 10s));
    CHECK(outcome->status.ok());
}

TEST_CASE("clock readings are requested once, and again after minutes without a call") {
    GroupRig rig(3);
    const Group group = rig.group(-1);
    const auto clock_requests = [&] {
        const std::uint64_t before = node_of(*rig.client).client.counters().submitted;
        REQUIRE(rig.call(group, "x", in_a_row(30s)).status.ok());
        return node_of(*rig.client).client.counters().submitted - before;
    };
    CHECK(clock_requests() == 4);
    CHECK(clock_requests() == 2);
    rig.sim.run_for(60s);
    CHECK(clock_requests() == 2);
    rig.sim.run_for(600s);
    CHECK(clock_requests() == 4);
    CHECK(clock_requests() == 2);
}

}  // namespace coll_idle
