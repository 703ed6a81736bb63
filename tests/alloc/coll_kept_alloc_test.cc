// Members keep no more of completed collectives than docs/limits.md states.
#include "alloc/counting_new.h"
#include "support/catch.h"
#include "support/group_rig.h"

using namespace weft;

TEST_CASE("kept replies of completed collectives take at most 64 MiB in each rank") {
    if (!test::allocations_count()) return;
    constexpr std::uint32_t n = 3;
    constexpr std::int64_t kept_most = 64 << 20;
    constexpr std::int64_t slack = 16 << 20;
    test::GroupRig rig(n);
    rig.answer = [](std::uint32_t, ByteView) { return std::vector<std::byte>(4 << 20); };
    std::int64_t before = 0;
    // Clients that call once: none of their collectives is ever acknowledged.
    for (int i = 0; i < 24; ++i) {
        Runtime& client = rig.sim.add("", {});
        const Group group = client.group(rig.view()).value();
        if (i == 1) before = test::live_bytes();
        const GroupOutcome outcome = rig.call(group, "x", {.timeout = 30s});
        REQUIRE(outcome.status.ok());
    }
    const std::int64_t kept = test::live_bytes() - before;
    CHECK(kept <= n * kept_most + slack);
    CHECK(kept > kept_most / 2);
}
