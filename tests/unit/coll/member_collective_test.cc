// Collectives among members: barrier, all-gather, all-reduce.
#include <map>
#include <set>

#include "base/codec.h"
#include "support/catch.h"
#include "support/member_collective_rig.h"
#include "support/seed.h"

using namespace weft;
using test::MemberCollectiveRig;

TEST_CASE("a barrier completes only after every member has joined, in any order") {
    for (std::uint64_t run = 0; run < 30; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const auto n = static_cast<std::uint32_t>(1 + random.next() % 20);
        MemberCollectiveRig members(n);
        std::vector<std::uint32_t> order;
        for (std::uint32_t rank = 0; rank < n; ++rank) order.push_back(rank);
        for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
        for (std::uint32_t i = 0; i < n; ++i) {
            CHECK(members.ended() == 0);
            members.join(order[i], "here", {});
            if (i + 1 < n) {
                members.rig.sim.run_for(Duration(static_cast<std::int64_t>(
                    random.next() % (i % 5 == 0 ? 3'000'000'000u : 1'000'000u))));
            }
        }
        REQUIRE(members.rig.sim.run_until([&] { return members.ended() == n; }, 10s));
        for (const auto& outcome : members.outcomes) {
            INFO(outcome->status.to_string());
            CHECK(outcome->status.ok());
            CHECK(outcome->ranks.size() == n);
        }
        members.rig.sim.run_for(3s);
        CHECK(members.remaining() == 0);
        CHECK(members.rig.running() == 0);
    }
}

TEST_CASE("an all-gather delivers every value to every member, merged with a reduction") {
    const std::uint32_t n = 13;
    MemberCollectiveRig members(n);
    const bool merges = GENERATE(false, true);
    GroupCallOptions options{.timeout = 5s};
    if (merges) options.reduction.operation = Reduction::Operation::sum;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        const std::uint64_t value = 100 + rank;
        members.join(rank, "values", {reinterpret_cast<const std::byte*>(&value), sizeof value},
                     options);
    }
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == n; }, 5s));
    for (const auto& outcome : members.outcomes) {
        REQUIRE(outcome->status.ok());
        REQUIRE(outcome->ranks.size() == n);
        if (merges) {
            REQUIRE(outcome->merged.size() == 8);
            CHECK(base::load<std::uint64_t>(outcome->merged.data()) == 100 * n + n * (n - 1) / 2);
            continue;
        }
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            REQUIRE(outcome->ranks[rank].reply.size() == 8);
            CHECK(base::load<std::uint64_t>(outcome->ranks[rank].reply.data()) == 100 + rank);
        }
    }
}

TEST_CASE("member collectives repeat under one name, also beside those of other names") {
    const std::uint32_t n = 7;
    MemberCollectiveRig members(n);
    for (int round = 0; round < 20; ++round) {
        for (auto& outcome : members.outcomes) outcome.reset();
        for (std::uint32_t rank = 0; rank < n; ++rank) members.join(rank, "again", {});
        REQUIRE(members.rig.sim.run_until([&] { return members.ended() == n; }, 5s));
        for (const auto& outcome : members.outcomes) REQUIRE(outcome->status.ok());
    }
}

TEST_CASE("a member collective fails for every waiting member when the leader dies") {
    const std::uint32_t n = 9;
    MemberCollectiveRig members(n);
    const bool has_begun = GENERATE(false, true);
    for (std::uint32_t rank = has_begun ? 0 : 1; rank < n - 1; ++rank) members.join(rank, "x", {});
    members.rig.sim.run_for(200ms);
    CHECK(members.ended() == 0);
    members.rig.sim.kill("s0");
    REQUIRE(members.rig.sim.run_until(
        [&] { return members.ended() >= static_cast<std::size_t>(n - 2); }, 8s));
    for (std::uint32_t rank = 1; rank < n - 1; ++rank) {
        CHECK(members.outcomes[rank]->status.code() == Code::unavailable);
        CHECK(members.outcomes[rank]->status.text().find("rank 0 (leader)") !=
              std::string_view::npos);
    }
}

TEST_CASE("a member collective reports the member that died before it joined") {
    const std::uint32_t n = 9;
    MemberCollectiveRig members(n);
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        if (rank != 4) members.join(rank, "x", {});
    }
    members.rig.sim.run_for(100ms);
    members.rig.sim.kill("s4");
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == n - 1; }, 8s));
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        if (rank == 4) continue;
        CHECK(members.outcomes[rank]->status.code() == Code::unavailable);
        CHECK_FALSE(members.outcomes[rank]->ranks[4].status.ok());
        CHECK(members.outcomes[rank]->ranks[3].status.ok());
    }
}

TEST_CASE("a lone member's deadline reports the leader that has not joined") {
    MemberCollectiveRig members(3);
    members.join(1, "x", {}, {.timeout = 4s});
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 1; }, 5s));
    CHECK(members.outcomes[1]->status.code() == Code::deadline_exceeded);
    CHECK(members.outcomes[1]->status.text().find("rank 0 (leader)") != std::string_view::npos);
    members.join(0, "y", {}, {.timeout = 2s});
    REQUIRE(members.rig.sim.run_until([&] { return members.ended() == 2; }, 3s));
    CHECK(members.outcomes[0]->status.code() == Code::deadline_exceeded);
}

TEST_CASE("a member collective with invalid options is refused") {
    MemberCollectiveRig members(3);
    const auto refused = [&](std::uint32_t rank, const std::string& name,
                             const GroupCallOptions& options) {
        members.outcomes[rank].reset();
        members.join(rank, name, {}, options);
        REQUIRE(members.rig.sim.run_until([&] { return members.outcomes[rank].has_value(); }, 1s));
        return members.outcomes[rank]->status.code();
    };
    const RankSet others{0, 2};
    CHECK(refused(1, "x", {.include = &others}) == Code::failed_precondition);
    CHECK(refused(1, std::string(257, 'x'), {}) == Code::invalid_argument);
    CHECK(refused(1, "x", {.reduction = {.operation = Reduction::Operation::method}}) ==
          Code::invalid_argument);
    members.outcomes[2].reset();
    members.join(2, "x", {});
    std::optional<GroupOutcome> second;
    members.rig.group(2).all_gather("x", {}, {},
                                    [&](GroupOutcome all) { second = std::move(all); });
    REQUIRE(members.rig.sim.run_until([&] { return second.has_value(); }, 1s));
    CHECK(second->status.code() == Code::failed_precondition);
    std::optional<GroupOutcome> outside;
    members.rig.group(-1).all_gather("x", {}, {},
                                     [&](GroupOutcome all) { outside = std::move(all); });
    REQUIRE(members.rig.sim.run_until([&] { return outside.has_value(); }, 1s));
    CHECK(outside->status.code() == Code::failed_precondition);
}
