// Gathers that wait for this member take a share of the pending slots.
#include "coll/member_collective_wire.h"
#include "support/member_collective_rig.h"

using namespace weft;
using test::MemberCollectiveRig;

TEST_CASE("pending gathers of one peer leave slots for those of other peers") {
    MemberCollectiveRig members(2);
    test::GroupRig& rig = members.rig;
    Runtime& member = *rig.sim.runtimes[1];
    const Channel channel = rig.sim.add("", {}).connect("sim://s1").value();
    std::size_t answered = 0;
    const std::uint64_t group = method_hash(rig.view().name());
    coll::ForwardHeader header;
    header.view = rig.view().digest();
    header.group = group;
    header.method = method_hash("weft.Group/Gather");
    header.parent = 1;  // The peer claims to be rank 0, with clients of its own.
    header.first = 1;
    header.last = 2;
    constexpr std::size_t of_client = coll::ResourceQuota::running_per_client_max;
    for (std::uint64_t i = 0; i < 4 * of_client; ++i) {
        header.key = {i + 1, 0};
        header.client = static_cast<std::uint16_t>(1 + i / of_client);
        header.began = impl_of(member).collectives.clock_reading();
        const std::string name = "evil " + std::to_string(i);
        const std::vector<std::byte> body =
            coll::encode(coll::MemberCollectiveHeader{group, 1, 77, 0, name});
        const coll::ForwardParts parts{header, {}, {}, body};
        std::vector<std::byte> bytes(parts.bytes());
        coll::encode_forward(parts, bytes);
        channel.call(coll::forward_method, bytes, {.timeout = no_timeout},
                     [&](const Status& status, ByteView) { answered += status.ok(); });
        if (i % 256 == 255) rig.sim.run_for(1ms);
    }
    rig.sim.run_for(10ms);
    CHECK(answered == 4 * of_client);
    members.join(0, "honest", {});
    rig.sim.run_for(50ms);
    CHECK(members.ended() == 0);
    members.join(1, "honest", {});
    REQUIRE(rig.sim.run_until([&] { return members.ended() == 2; }, 30s));
    for (const auto& outcome : members.outcomes) {
        INFO(outcome->status.to_string());
        CHECK(outcome->status.ok());
    }
}
