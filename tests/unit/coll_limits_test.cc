// What collectives keep: bodies while they run, answers afterwards, and who wants to hear of
// changes.
#include <memory>
#include <optional>
#include <string>

#include "support/catch.h"
#include "support/group_rig.h"

using namespace weft;
using test::GroupRig;

namespace coll_limits {

GroupCallOptions in_pairs(Duration timeout) {
    GroupCallOptions options{.timeout = timeout};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    return options;
}

TEST_CASE("coll limits: the bodies that an inner rank keeps are bounded, one of any size alone") {
    RuntimeOptions small;
    small.handler_bytes_max = 8 << 20;
    GroupRig rig(7, nullptr, small);
    for (auto& service : rig.services) service.hold = true;
    const Group group = rig.group(-1);
    constexpr int all = 5;
    std::vector<GroupOutcome> outcomes;
    const auto start = [&](std::size_t bytes) {
        const std::string body(bytes, 'x');
        group.collective(test::tell_method, BodyWriter::of(as_bytes(body)), in_pairs(20s),
                         [&](GroupOutcome one) { outcomes.push_back(std::move(one)); });
        rig.sim.run_for(1s);
    };
    for (int i = 0; i < all; ++i) start(4 << 20);
    // Inner ranks refuse; those below them, who keep nothing, are asked all the same.
    for (const std::uint32_t inner : {0u, 1u, 4u}) CHECK(rig.services[inner].told.size() == 2);
    for (const std::uint32_t leaf : {2u, 3u, 5u, 6u}) CHECK(rig.services[leaf].told.size() == all);
    // Small ones are not counted: nor with one alone that is over the limit.
    for (auto& service : rig.services) service.hold = false;
    CHECK(rig.call(group, "x", in_pairs(5s)).status.ok());
    rig.answer_held();
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == all; }, 60s));
    for (const GroupOutcome& outcome : outcomes) {
        for (const RankOutcome& one : outcome.ranks) {
            INFO("rank " << one.rank << ": " << one.status.to_string());
            CHECK((one.status.ok() || one.status.code() == Code::resource_exhausted));
            CHECK((one.status.ok() || one.status.effect() == Effect::none));
        }
    }
    outcomes.clear();
    for (auto& service : rig.services) service.hold = true;
    start(12 << 20);
    for (auto& service : rig.services) service.hold = false;
    CHECK(rig.call(group, "x", in_pairs(5s)).status.ok());
    rig.answer_held();
    REQUIRE(rig.sim.run_until([&] { return outcomes.size() == 1; }, 60s));
    CHECK(outcomes[0].status.ok());
    // All has been let go of.
    for (const std::size_t bytes : {12 << 20, 8 << 20, 12 << 20}) {
        CHECK(rig.call(group, std::string(bytes, 'x'), in_pairs(20s)).status.ok());
    }
}

TEST_CASE("coll limits: who hears of changes may hold the group, and no runtime is left of it") {
    for (const bool joined : {true, false}) {
        INFO((joined ? "a member's" : "a client's"));
        const auto held = std::make_shared<int>(1);
        {
            GroupRig rig(2);
            const Group group = rig.group(joined ? 0 : -1);
            group.on_change([group, held](const MemberChange&) { (void)group.view(); });
            rig.sim.run_for(10ms);
        }
        CHECK(held.use_count() == 1);
    }
}

}  // namespace coll_limits
