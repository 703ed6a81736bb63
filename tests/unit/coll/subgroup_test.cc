#include <weft/protobuf_group.h>
#include <weft/subgroup.h>

#include <chrono>
#include <random>

#include "support/catch.h"
#include "support/group_rig.h"
#include "support/seed.h"

using namespace weft;
using test::GroupRig;

namespace {

GroupOutcome call(GroupRig& rig, const Subgroup& subgroup, const GroupCallOptions& options = {}) {
    std::optional<GroupOutcome> outcome;
    subgroup.collective(test::record_method, BodyWriter::of(as_bytes("x")), options,
                        [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
    return *std::move(outcome);
}

std::vector<std::uint32_t> ranks_of(const GroupOutcome& outcome) {
    std::vector<std::uint32_t> ranks;
    for (const RankOutcome& one : outcome.ranks) ranks.push_back(one.rank);
    return ranks;
}

Task<void> wait_for_all(Subgroup subgroup, Status& into, int& ended) {
    into = co_await barrier(subgroup, "together", {.timeout = 5s});
    ++ended;
}

}  // namespace

TEST_CASE("a subgroup has ranks of its own, in the order of the group's ranks") {
    GroupRig rig(10);
    const Subgroup subgroup = Subgroup::make(rig.group(-1), {1, 4, 5, 9}).value();
    REQUIRE(subgroup.size() == 4);
    const std::vector<std::uint32_t> members{1, 4, 5, 9};
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        CHECK(subgroup.rank_in_group(rank) == members[rank]);
        CHECK(subgroup.own_rank(members[rank]) == rank);
    }
    CHECK_FALSE(subgroup.own_rank(0).has_value());
    CHECK_FALSE(subgroup.own_rank(6).has_value());
    const GroupOutcome outcome = call(rig, subgroup);
    CHECK(outcome.status.ok());
    CHECK(ranks_of(outcome) == std::vector<std::uint32_t>{0, 1, 2, 3});
    for (std::uint32_t rank = 0; rank < 10; ++rank) {
        CHECK(rig.services[rank].received.size() == (subgroup.own_rank(rank) ? 1 : 0));
    }
}

TEST_CASE("filters of a subgroup select by its own ranks") {
    GroupRig rig(10);
    const Subgroup subgroup = Subgroup::make(rig.group(4), {1, 4, 5, 9}).value();
    const RankSet some{1, 2, 3};
    const RankSet without{2};
    CHECK(ranks_of(call(rig, subgroup, {.include = &some, .exclude = &without})) ==
          std::vector<std::uint32_t>{1, 3});
    CHECK(rig.services[4].received.size() == 1);
    CHECK(rig.services[5].received.empty());
    const RankSet beyond{4};
    CHECK(call(rig, subgroup, {.include = &beyond}).status.code() == Code::invalid_argument);
    CHECK(call(rig, subgroup, {.exclude = &beyond}).status.code() == Code::invalid_argument);
}

TEST_CASE("a member that has left the group keeps its rank in a subgroup") {
    GroupRig rig(6);
    const Group group = rig.group(0);
    const Subgroup subgroup = Subgroup::make(group, {0, 2, 4}).value();
    for (int rank = 0; rank < 6; ++rank) {
        REQUIRE(rig.group(rank).install(evict(rig.view(), 2).value()).ok());
    }
    const GroupOutcome outcome = call(rig, subgroup);
    REQUIRE(ranks_of(outcome) == std::vector<std::uint32_t>{0, 1, 2});
    CHECK(outcome.ranks[1].status.code() == Code::not_found);
    CHECK(outcome.ranks[2].status.ok());
    CHECK(rig.services[4].received.size() == 1);
}

TEST_CASE("a subgroup has an outcome for each member when all have left the group") {
    GroupRig rig(6);
    const Group group = rig.group(0);
    const Subgroup subgroup = Subgroup::make(group, {2, 4}).value();
    for (int rank = 0; rank < 6; ++rank) {
        REQUIRE(rig.group(rank).install(evict(rig.view(), 2).value()).ok());
        REQUIRE(rig.group(rank).install(evict(rig.group(rank).view(), 4).value()).ok());
    }
    const GroupOutcome all = call(rig, subgroup);
    CHECK(all.status.code() == Code::not_found);
    CHECK(all.status.effect() == Effect::none);
    CHECK(all.epoch == group.view().epoch());
    REQUIRE(ranks_of(all) == std::vector<std::uint32_t>{0, 1});
    CHECK(all.ranks[0].status.code() == Code::not_found);
    CHECK(all.ranks[1].status.code() == Code::not_found);

    const GroupOutcome some = call(rig, subgroup, {.policy = Policy::best_effort});
    CHECK(some.status.ok());
    CHECK(ranks_of(some) == std::vector<std::uint32_t>{0, 1});
    const GroupOutcome most = call(rig, subgroup, {.policy = Policy::quorum});
    CHECK(most.status.code() == Code::not_found);
    CHECK(most.status.to_string().find("0 of 2 ranks") != std::string::npos);
    const RankSet none{0};
    const GroupOutcome excluded =
        call(rig, subgroup, {.policy = Policy::best_effort, .include = &none, .exclude = &none});
    CHECK(excluded.status.code() == Code::invalid_argument);

    std::optional<GroupOutcome> scattered;
    const std::vector<RankBody> bodies{{0, as_bytes("a")}, {1, as_bytes("b")}};
    subgroup.scatter(test::record_method, bodies, {},
                     [&](GroupOutcome outcome) { scattered = std::move(outcome); });
    REQUIRE(rig.sim.run_until([&] { return scattered.has_value(); }));
    CHECK(ranks_of(*scattered) == std::vector<std::uint32_t>{0, 1});
    CHECK(scattered->ranks[1].status.code() == Code::not_found);
}

TEST_CASE("a stale client gets an outcome for each subgroup member that has left the group") {
    GroupRig rig(6);
    const Subgroup subgroup = Subgroup::make(rig.group(-1), {2, 4}).value();
    for (int rank = 0; rank < 6; ++rank) {
        REQUIRE(rig.group(rank).install(evict(rig.view(), 2).value()).ok());
        REQUIRE(rig.group(rank).install(evict(rig.group(rank).view(), 4).value()).ok());
    }
    const GroupOutcome all = call(rig, subgroup, {.timeout = 5s});
    REQUIRE(ranks_of(all) == std::vector<std::uint32_t>{0, 1});
    CHECK(all.ranks[0].status.code() == Code::not_found);
    CHECK(all.ranks[1].status.code() == Code::not_found);
    CHECK(rig.services[2].received.empty());
    CHECK(rig.services[4].received.empty());
}

TEST_CASE("members of a subgroup all-gather, and a scatter gives each a body of its own") {
    GroupRig rig(7);
    std::vector<std::optional<GroupOutcome>> outcomes(7);
    for (const std::uint32_t rank : {2u, 3u, 6u}) {
        Subgroup::make(rig.group(static_cast<int>(rank)), {2, 3, 6})
            .value()
            .all_gather("here", as_bytes(std::string(rank, 'x')), {.timeout = 5s},
                        [&outcomes, rank](GroupOutcome all) { outcomes[rank] = std::move(all); });
    }
    REQUIRE(rig.sim.run_until([&] { return outcomes[2] && outcomes[3] && outcomes[6]; }));
    for (const std::uint32_t rank : {2u, 3u, 6u}) {
        REQUIRE(outcomes[rank]->status.ok());
        REQUIRE(outcomes[rank]->ranks.size() == 3);
        CHECK(outcomes[rank]->ranks[2].rank == 2);
        CHECK(outcomes[rank]->ranks[2].reply.size() == 6);
    }
    const std::vector<RankBody> bodies{{0, as_bytes("a")}, {1, as_bytes("b")}, {2, as_bytes("c")}};
    std::optional<GroupOutcome> scattered;
    Subgroup::make(rig.group(-1), {2, 3, 6})
        .value()
        .scatter(test::record_method, bodies, {},
                 [&](GroupOutcome all) { scattered = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return scattered.has_value(); }));
    CHECK(rig.services[6].received == std::vector<std::string>{"c"});
}

TEST_CASE("a barrier of a subgroup completes in coroutines when every member has joined") {
    Status one, other;
    int ended = 0;
    GroupRig rig(4);
    const auto start = [&](int rank, Status& into) {
        const Subgroup subgroup = Subgroup::make(rig.group(rank), {1, 3}).value();
        CHECK(subgroup);
        rig.sim.runtimes[static_cast<std::size_t>(rank)]->spawn(
            wait_for_all(subgroup, into, ended));
    };
    start(1, one);
    rig.sim.run_for(1s);
    CHECK(ended == 0);
    start(3, other);
    REQUIRE(rig.sim.run_until([&] { return ended == 2; }));
    CHECK(one.ok());
    CHECK(other.ok());
}

TEST_CASE("an empty subgroup is refused, and so is a channel to a rank that it lacks") {
    GroupRig rig(3);
    CHECK(Subgroup::make(rig.group(-1), {}).status().code() == Code::invalid_argument);
    const Subgroup subgroup = Subgroup::make(rig.group(-1), {1}).value();
    CHECK(subgroup.channel(0).ok());
    CHECK(subgroup.channel(1).status().code() == Code::out_of_range);
}

TEST_CASE("ranks of a subgroup are those of a plain list of its members") {
    GroupRig rig(2);
    for (std::uint64_t index = 0; index < 50; ++index) {
        std::mt19937_64 random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        const std::uint64_t odds = 1 + random() % 4;
        std::vector<std::uint32_t> naive;
        RankSet members;
        for (std::uint32_t rank = 0; rank < 300; ++rank) {
            if (random() % (odds + 1) != 0) continue;
            members.add(rank);
            naive.push_back(rank);
        }
        if (naive.empty()) continue;
        const Subgroup subgroup = Subgroup::make(rig.group(0), members).value();
        REQUIRE(subgroup.size() == naive.size());
        REQUIRE(subgroup.members() == members);
        for (std::uint32_t own = 0; own < naive.size(); ++own) {
            REQUIRE(subgroup.rank_in_group(own) == naive[own]);
        }
        for (std::uint32_t rank = 0; rank < 310; ++rank) {
            const auto at = std::find(naive.begin(), naive.end(), rank);
            const auto own = subgroup.own_rank(rank);
            REQUIRE(own.has_value() == (at != naive.end()));
            if (own) REQUIRE(*own == static_cast<std::uint32_t>(at - naive.begin()));
        }
    }
}

// Ranks without a member in the group fail locally: nothing is sent.
TEST_CASE("ranks of a subgroup of many ranges are found without a walk over all of them") {
    GroupRig rig(1);
    const std::uint32_t n = 200'000;
    RankSet members;
    for (std::uint32_t own = 0; own < n; ++own) members.add(2 * own);
    const Subgroup subgroup = Subgroup::make(rig.group(0), members).value();
    const auto began = std::chrono::steady_clock::now();
    std::uint32_t wrong = 0;
    for (std::uint32_t own = 0; own < n; ++own) {
        wrong += subgroup.rank_in_group(own) != 2 * own;
        wrong += subgroup.own_rank(2 * own) != own;
        wrong += subgroup.own_rank(2 * own + 1).has_value();
    }
    CHECK(wrong == 0);
    RankSet some;
    some.add(0, n - 1);
    const GroupOutcome outcome = call(rig, subgroup, {.include = &some});
    CHECK(std::chrono::steady_clock::now() - began < 5s);
    REQUIRE(outcome.ranks.size() == n);
    for (std::uint32_t own = 0; own < n; ++own) wrong += outcome.ranks[own].rank != own;
    CHECK(wrong == 0);
    CHECK(outcome.ranks[0].status.ok());
    CHECK(outcome.ranks[1].status.code() == Code::not_found);
}
