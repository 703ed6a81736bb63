// Members that meet: barrier, allgather, allreduce.
#include <map>
#include <set>

#include "base/codec.h"
#include "support/catch.h"
#include "support/meeting_rig.h"
#include "support/seed.h"

using namespace weft;
using test::MeetingRig;

TEST_CASE("nobody leaves a barrier before all have come, in whatever order") {
    for (std::uint64_t run = 0; run < 30; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const auto n = static_cast<std::uint32_t>(1 + random.next() % 20);
        MeetingRig meeting(n);
        std::vector<std::uint32_t> order;
        for (std::uint32_t rank = 0; rank < n; ++rank) order.push_back(rank);
        for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[random.next() % i]);
        for (std::uint32_t i = 0; i < n; ++i) {
            CHECK(meeting.ended() == 0);
            meeting.come(order[i], "here", {});
            if (i + 1 < n) {
                meeting.rig.sim.run_for(Duration(static_cast<std::int64_t>(
                    random.next() % (i % 5 == 0 ? 3'000'000'000u : 1'000'000u))));
            }
        }
        REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == n; }, 10s));
        for (const auto& outcome : meeting.outcomes) {
            INFO(outcome->status.to_string());
            CHECK(outcome->status.ok());
            CHECK(outcome->ranks.size() == n);
        }
        meeting.rig.sim.run_for(3s);
        CHECK(meeting.left() == 0);
        CHECK(meeting.rig.running() == 0);
    }
}

TEST_CASE("what each brought comes to all, and merged where that is asked for") {
    const std::uint32_t n = 13;
    MeetingRig meeting(n);
    const bool merges = GENERATE(false, true);
    GroupCallOptions options{.timeout = 5s};
    if (merges) options.reduction.operation = Reduction::Operation::sum;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        const std::uint64_t value = 100 + rank;
        meeting.come(rank, "values", {reinterpret_cast<const std::byte*>(&value), sizeof value},
                     options);
    }
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == n; }, 5s));
    for (const auto& outcome : meeting.outcomes) {
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

TEST_CASE("meetings follow one another under one name, and go on beside those of other names") {
    const std::uint32_t n = 7;
    MeetingRig meeting(n);
    for (int round = 0; round < 20; ++round) {
        for (auto& outcome : meeting.outcomes) outcome.reset();
        for (std::uint32_t rank = 0; rank < n; ++rank) meeting.come(rank, "again", {});
        REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == n; }, 5s));
        for (const auto& outcome : meeting.outcomes) REQUIRE(outcome->status.ok());
    }
}

TEST_CASE("a meeting whose leader dies ends for all who wait") {
    const std::uint32_t n = 9;
    MeetingRig meeting(n);
    const bool has_begun = GENERATE(false, true);
    for (std::uint32_t rank = has_begun ? 0 : 1; rank < n - 1; ++rank) meeting.come(rank, "x", {});
    meeting.rig.sim.run_for(200ms);
    CHECK(meeting.ended() == 0);
    meeting.rig.sim.kill("s0");
    REQUIRE(meeting.rig.sim.run_until(
        [&] { return meeting.ended() >= static_cast<std::size_t>(n - 2); }, 8s));
    for (std::uint32_t rank = 1; rank < n - 1; ++rank) {
        CHECK(meeting.outcomes[rank]->status.code() == Code::unavailable);
        CHECK(meeting.outcomes[rank]->status.text().find("rank 0, who leads") !=
              std::string_view::npos);
    }
}

TEST_CASE("a meeting names who died before he came, to all the others") {
    const std::uint32_t n = 9;
    MeetingRig meeting(n);
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        if (rank != 4) meeting.come(rank, "x", {});
    }
    meeting.rig.sim.run_for(100ms);
    meeting.rig.sim.kill("s4");
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == n - 1; }, 8s));
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        if (rank == 4) continue;
        CHECK(meeting.outcomes[rank]->status.code() == Code::unavailable);
        CHECK_FALSE(meeting.outcomes[rank]->ranks[4].status.ok());
        CHECK(meeting.outcomes[rank]->ranks[3].status.ok());
    }
}

TEST_CASE("who comes alone is told at his deadline who did not come") {
    MeetingRig meeting(3);
    meeting.come(1, "x", {}, {.timeout = 4s});
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 1; }, 5s));
    CHECK(meeting.outcomes[1]->status.code() == Code::deadline_exceeded);
    CHECK(meeting.outcomes[1]->status.text().find("rank 0, who leads") != std::string_view::npos);
    meeting.come(0, "y", {}, {.timeout = 2s});
    REQUIRE(meeting.rig.sim.run_until([&] { return meeting.ended() == 2; }, 3s));
    CHECK(meeting.outcomes[0]->status.code() == Code::deadline_exceeded);
}

TEST_CASE("a meeting that can't be is refused") {
    MeetingRig meeting(3);
    const auto refused = [&](std::uint32_t rank, const std::string& name,
                             const GroupCallOptions& options) {
        meeting.outcomes[rank].reset();
        meeting.come(rank, name, {}, options);
        REQUIRE(meeting.rig.sim.run_until([&] { return meeting.outcomes[rank].has_value(); }, 1s));
        return meeting.outcomes[rank]->status.code();
    };
    const RankSet others{0, 2};
    CHECK(refused(1, "x", {.include = &others}) == Code::failed_precondition);
    CHECK(refused(1, std::string(257, 'x'), {}) == Code::invalid_argument);
    CHECK(refused(1, "x", {.reduction = {.operation = Reduction::Operation::method}}) ==
          Code::invalid_argument);
    meeting.outcomes[2].reset();
    meeting.come(2, "x", {});
    std::optional<GroupOutcome> second;
    meeting.rig.group(2).meet("x", {}, {}, [&](GroupOutcome all) { second = std::move(all); });
    REQUIRE(meeting.rig.sim.run_until([&] { return second.has_value(); }, 1s));
    CHECK(second->status.code() == Code::failed_precondition);
    std::optional<GroupOutcome> outside;
    meeting.rig.group(-1).meet("x", {}, {}, [&](GroupOutcome all) { outside = std::move(all); });
    REQUIRE(meeting.rig.sim.run_until([&] { return outside.has_value(); }, 1s));
    CHECK(outside->status.code() == Code::failed_precondition);
}
