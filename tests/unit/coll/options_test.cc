// Collectives of all kinds, over the RPC core and a simulated network.
#include <map>
#include <numeric>
#include <set>

#include "base/codec.h"
#include "support/catch.h"
#include "support/group_rig.h"
#include "support/hold_server.h"
#include "support/seed.h"

using namespace weft;
using test::GroupRig;

namespace {

std::vector<std::byte> number(std::uint64_t value) {
    std::vector<std::byte> bytes(sizeof value);
    base::store(bytes.data(), value);
    return bytes;
}

std::uint64_t as_number(ByteView bytes) {
    REQUIRE(bytes.size() == sizeof(std::uint64_t));
    return base::load<std::uint64_t>(bytes.data());
}

}  // namespace

TEST_CASE("a filter selects the ranks of a collective, for callers of all kinds") {
    const std::uint32_t n = 12;
    const RankSet some{1, 2, 3, 5, 8};
    const RankSet without{2, 11};
    const int which = GENERATE(0, 1, 2);
    for (const int caller : {-1, 0, 3, 11}) {
        INFO("caller " << caller);
        GroupRig rig(n);
        const Group group = rig.group(caller);
        GroupCallOptions options{.timeout = 5s};
        std::set<std::uint32_t> expected;
        if (which != 0) options.exclude = &without;
        if (which != 1) options.include = &some;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            const bool is_named = which == 1 || some.contains(rank);
            if (is_named && (which == 0 || !without.contains(rank))) expected.insert(rank);
        }
        const GroupOutcome outcome = rig.call(group, "x", options);
        CHECK(outcome.status.ok());
        CHECK(outcome.ranks.size() == expected.size());
        std::set<std::uint32_t> received;
        for (const RankOutcome& one : outcome.ranks) {
            CHECK(one.status.ok());
            received.insert(one.rank);
        }
        CHECK(received == expected);
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            CHECK(rig.services[rank].received.size() == expected.count(rank));
        }
    }
}

TEST_CASE("a named rank that is no member fails alone, and an empty selection is an error") {
    GroupRig rig(4);
    const Group group = rig.group(-1);
    const RankSet named{1, 7};
    GroupOutcome outcome = rig.call(group, "x", {.include = &named});
    REQUIRE(outcome.ranks.size() == 2);
    CHECK(outcome.ranks[0].status.ok());
    CHECK(outcome.ranks[1].rank == 7);
    CHECK(outcome.ranks[1].status.code() == Code::not_found);
    CHECK(outcome.status.code() == Code::not_found);
    CHECK(outcome.status.text().find("rank 7") != std::string_view::npos);
    const RankSet all{0, 1, 2, 3};
    outcome = rig.call(group, "x", {.exclude = &all});
    CHECK(outcome.status.code() == Code::invalid_argument);
}

TEST_CASE("invalid options are refused before any rank is contacted") {
    GroupRig rig(4);
    const Group group = rig.group(-1);
    const auto refused = [&](const GroupCallOptions& options) {
        return rig.call(group, "x", options).status.code() == Code::invalid_argument;
    };
    CHECK(refused({.policy = Policy::quorum, .quorum = 5}));
    CHECK(refused({.topology = {.shape = Topology::Shape::k_ary, .fanout = 1}}));
    CHECK(refused({.topology = {.shape = Topology::Shape::k_nomial, .fanout = 65}}));
    CHECK(refused({.reduction = {.operation = Reduction::Operation::bit_or,
                                 .number = Reduction::Number::f64}}));
    for (const auto& service : rig.services) CHECK(service.received.empty());
}

TEST_CASE("replies are merged in the tree, for any tree, root and number of ranks") {
    using Operation = Reduction::Operation;
    for (std::uint32_t n = 1; n <= 20; ++n) {
        for (const int caller : {-1, 0, static_cast<int>(n) - 1}) {
            INFO("n " << n << ", caller " << caller);
            GroupRig rig(n);
            rig.answer = [](std::uint32_t rank, ByteView) { return number(rank * 3 + 1); };
            const Group group = rig.group(caller);
            std::uint64_t sum = 0;
            for (std::uint32_t rank = 0; rank < n; ++rank) sum += rank * 3 + 1;
            const std::map<Operation, std::uint64_t> expected{
                {Operation::sum, sum}, {Operation::min, 1}, {Operation::max, (n - 1) * 3 + 1}};
            for (const auto& [operation, value] : expected) {
                const GroupOutcome outcome =
                    rig.call(group, "x", {.reduction = {.operation = operation}});
                REQUIRE(outcome.status.ok());
                REQUIRE(outcome.ranks.size() == n);
                CHECK(as_number(outcome.merged) == value);
                for (const RankOutcome& one : outcome.ranks) CHECK(one.reply.empty());
            }
        }
    }
}

static Status append(std::vector<std::byte>& into, ByteView from) {
    into.insert(into.end(), from.begin(), from.end());
    return {};
}

TEST_CASE("an ordered merge need not commute, whatever the caller and the dead ranks") {
    for (std::uint64_t run = 0; run < 40; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        const auto n = static_cast<std::uint32_t>(1 + random.next() % 24);
        const int caller = random.next() % 2 ? -1 : static_cast<int>(random.next() % n);
        GroupRig rig(n, &append);
        rig.answer = [](std::uint32_t rank, ByteView) {
            return std::vector<std::byte>{static_cast<std::byte>('a' + rank)};
        };
        std::set<std::uint32_t> dead;
        for (std::uint64_t i = random.next() % 4; i > 0; --i) {
            const auto rank = static_cast<std::uint32_t>(random.next() % n);
            if (static_cast<int>(rank) != caller && dead.size() + 1 < n) dead.insert(rank);
        }
        for (const std::uint32_t rank : dead) rig.sim.kill("s" + std::to_string(rank));
        std::string expected;
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            if (!dead.count(rank)) expected += static_cast<char>('a' + rank);
        }
        const GroupOutcome outcome =
            rig.call(rig.group(caller), "x",
                     {.reduction = {.operation = Reduction::Operation::method, .ordered = true},
                      .merge = &append});
        CHECK(as_text(outcome.merged) == expected);
        CHECK(outcome.status.ok() == dead.empty());
    }
}

TEST_CASE("a reply that can't be merged fails its own rank") {
    GroupRig rig(6);
    rig.answer = [](std::uint32_t rank, ByteView) {
        return rank == 4 ? std::vector<std::byte>(16) : number(1);
    };
    const GroupOutcome outcome =
        rig.call(rig.group(-1), "x", {.reduction = {.operation = Reduction::Operation::sum}});
    CHECK(outcome.status.code() == Code::invalid_argument);
    std::uint64_t ok = 0;
    for (const RankOutcome& one : outcome.ranks) ok += one.status.ok();
    CHECK(ok < 6);
    // Either side of a merge may be refused.
    const bool is_minority = outcome.merged.size() == 16;
    if (!is_minority) CHECK(as_number(outcome.merged) == ok);
}

TEST_CASE("a scatter delivers each rank's body, for any caller and below dead ranks") {
    for (std::uint32_t n : {1u, 2u, 7u, 24u}) {
        for (const int caller : {-1, 0, static_cast<int>(n) - 1}) {
            INFO("n " << n << ", caller " << caller);
            GroupRig rig(n);
            const std::uint32_t dead = n > 4 ? 3 : n;
            if (dead < n) rig.sim.kill("s3");
            std::vector<std::vector<std::byte>> bodies;
            std::vector<RankBody> views;
            for (std::uint32_t rank = 0; rank < n; ++rank) bodies.push_back(number(rank * 7));
            for (std::uint32_t rank = n; rank-- > 0;) views.push_back({rank, bodies[rank]});
            std::optional<GroupOutcome> outcome;
            rig.group(caller).scatter(test::record_method, views, {.timeout = 10s},
                                      [&](GroupOutcome all) { outcome = std::move(all); });
            REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
            REQUIRE(outcome->ranks.size() == n);
            for (std::uint32_t rank = 0; rank < n; ++rank) {
                CHECK(outcome->ranks[rank].status.ok() == (rank != dead));
                if (rank == dead) continue;
                REQUIRE(rig.services[rank].received.size() == 1);
                CHECK(rig.services[rank].received[0] == as_text(bodies[rank]));
            }
        }
    }
}

TEST_CASE("a scatter selects its ranks by the bodies, each once") {
    GroupRig rig(4);
    const auto scatter = [&](const std::vector<RankBody>& bodies, const GroupCallOptions& options) {
        std::optional<GroupOutcome> outcome;
        rig.group(-1).scatter(test::record_method, bodies, options,
                              [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
        return *std::move(outcome);
    };
    CHECK(scatter({}, {}).status.code() == Code::invalid_argument);
    CHECK(scatter({{1, {}}, {2, {}}, {1, {}}}, {}).status.code() == Code::invalid_argument);
    const RankSet one{1};
    CHECK(scatter({{1, {}}}, {.include = &one}).status.code() == Code::invalid_argument);
    CHECK(scatter({{1, {}}}, {.exclude = &one}).status.code() == Code::invalid_argument);

    const GroupOutcome some = scatter({{9, as_bytes("none")}, {2, as_bytes("b")}}, {});
    REQUIRE(some.ranks.size() == 2);
    CHECK(some.ranks[0].status.ok());
    CHECK(some.ranks[1].status.code() == Code::not_found);
    CHECK(rig.services[2].received == std::vector<std::string>{"b"});
    CHECK(rig.services[1].received.empty());
}

TEST_CASE("a scatter reaches the right ranks when the caller's view is old") {
    GroupRig rig(4);
    const GroupView later = admit(evict(rig.view(), 1).value(), {7, {"sim://s1"}}).value();
    for (int rank = 0; rank < 4; ++rank) REQUIRE(rig.group(rank).install(later).ok());
    const std::vector<RankBody> bodies{{0, as_bytes("for 0")},
                                       {1, as_bytes("for 1")},
                                       {2, as_bytes("for 2")},
                                       {3, as_bytes("for 3")}};
    const Group client = rig.group(-1);
    std::optional<GroupOutcome> outcome;
    client.scatter(test::record_method, bodies, {},
                   [&](GroupOutcome all) { outcome = std::move(all); });
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
    CHECK(client.view().epoch() == later.epoch());
    CHECK(outcome->epoch == later.epoch());
    REQUIRE(outcome->ranks.size() == 4);
    CHECK(outcome->ranks[1].status.code() == Code::not_found);
    for (const std::uint32_t rank : {0u, 2u, 3u}) {
        CHECK(outcome->ranks[rank].status.ok());
        CHECK(rig.services[rank].received ==
              std::vector<std::string>{"for " + std::to_string(rank)});
    }
    CHECK(rig.services[1].received.empty());
}

TEST_CASE("a quorum completes as soon as enough ranks succeeded, and the others go on") {
    const std::uint32_t n = 16;
    GroupRig rig(n);
    for (std::uint32_t rank = 9; rank < n; ++rank) rig.services[rank].hold = true;
    const TimePoint begun = rig.sim.clock->now();
    const GroupOutcome outcome =
        rig.call(rig.group(-1), "x", {.timeout = 20s, .policy = Policy::quorum, .quorum = 9});
    CHECK(outcome.status.ok());
    CHECK(rig.sim.clock->now() - begun < 2s);
    std::uint32_t ok = 0;
    for (const RankOutcome& one : outcome.ranks) {
        ok += one.status.ok();
        if (!one.status.ok()) CHECK(one.status.effect() == Effect::unknown);
    }
    CHECK(ok >= 9);
    for (const auto& service : rig.services) CHECK(service.received.size() == 1);
    for (auto& service : rig.services) CHECK_FALSE(service.was_cancelled());
    rig.reply_held();
    rig.sim.run_for(5s);
    CHECK(rig.running() == 0);
}

TEST_CASE("a quorum that can't be met fails once all have answered and names the failed ranks") {
    const std::uint32_t n = 8;
    GroupRig rig(n);
    for (std::uint32_t rank = 0; rank < 5; ++rank) rig.sim.kill("s" + std::to_string(rank));
    const GroupOutcome outcome =
        rig.call(rig.group(-1), "x", {.timeout = 20s, .policy = Policy::quorum});
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.text().find("3 of 8 ranks") != std::string_view::npos);
}

TEST_CASE("best effort completes without the ranks that can't be reached") {
    const std::uint32_t n = 12;
    GroupRig rig(n);
    rig.sim.kill("s5");
    const GroupOutcome outcome =
        rig.call(rig.group(-1), "x", {.timeout = 20s, .policy = Policy::best_effort});
    CHECK(outcome.status.ok());
    for (const RankOutcome& one : outcome.ranks) CHECK(one.status.ok() == (one.rank != 5));
}

TEST_CASE("best effort: the reply of a rank that waits only for suspects may be too large") {
    RuntimeOptions small;
    small.argument_bytes_max = 64 << 10;
    GroupRig rig(14, nullptr, small);
    rig.answer = [](std::uint32_t, ByteView) { return std::vector<std::byte>(20'000); };
    GroupCallOptions options{.timeout = 20s, .policy = Policy::best_effort};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    // Rank 0 has the ranks up to 6 below it, and rank 4 has rank 6 as its child. The collective
    // completes before rank 4 notices that rank 6 can't be reached.
    const Group group = rig.group(-1);
    rig.call(group, "x", options);
    rig.sim.world->cut("s4", "s6");
    const GroupOutcome outcome = rig.call(group, "x", options);
    for (const RankOutcome& one : outcome.ranks) {
        INFO("rank " << one.rank << ": " << one.status.to_string());
        CHECK(((one.status.effect() == Effect::applied) == (one.rank != 6)));
    }
}

TEST_CASE("a cancel reaches every handler at once and leaves nothing running") {
    const std::uint32_t n = 24;
    for (const int caller : {-1, 5}) {
        GroupRig rig(n);
        for (auto& service : rig.services) service.hold = true;
        const Group group = rig.group(caller);
        std::optional<GroupOutcome> outcome;
        const CollectiveId id =
            group.collective(test::record_method, BodyWriter::of(as_bytes("x")), {.timeout = 60s},
                             [&](GroupOutcome all) { outcome = std::move(all); });
        REQUIRE(id != 0);
        REQUIRE(rig.all_hold());
        group.cancel(id);
        group.cancel(id + 1000);  // Unknown id.
        REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
        CHECK(outcome->status.code() == Code::cancelled);
        rig.sim.run_for(10ms);
        for (auto& service : rig.services) CHECK(service.was_cancelled());
        for (auto& service : rig.services) service.held.clear();
        rig.sim.run_for(1s);
        CHECK(rig.running() == 0);
    }
}

TEST_CASE("a collective waits for a slow handler and runs it once") {
    const std::uint32_t n = 9;
    GroupRig rig(n);
    for (auto& service : rig.services) service.hold = true;
    std::optional<GroupOutcome> outcome;
    rig.group(-1).collective(test::record_method, BodyWriter::of(as_bytes("x")), {.timeout = 60s},
                             [&](GroupOutcome all) { outcome = std::move(all); });
    rig.sim.run_for(20s);
    CHECK_FALSE(outcome.has_value());
    for (auto& service : rig.services) CHECK(service.received.size() == 1);
    rig.reply_held();
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
    CHECK(outcome->status.ok());
}

TEST_CASE("the priority of a collective is the priority of its messages at every hop") {
    // Rank 1 forwards to rank 2, to which it has many calls of the lowest priority queued.
    test::HoldServer holder;
    int answered = 0;  // Outlives the calls that remain.
    RuntimeOptions few;
    few.calls_in_flight_max = 2;
    GroupRig rig(5, nullptr, few);
    REQUIRE(rig.sim.runtimes[2]->add(holder).ok());
    GroupCallOptions options{.timeout = 600s, .priority = 7};
    options.topology = {.shape = Topology::Shape::k_ary, .fanout = 2};
    // The ranks have each other's clock readings from here on, so that each sends one request.
    REQUIRE(rig.call(rig.group(0), "before", options).status.ok());
    for (auto& service : rig.services) service.received.clear();
    const Channel channel = rig.group(1).channel(2).value();
    for (int i = 0; i < 20; ++i) {
        channel.call(holder.hold, {}, {.timeout = 600s},
                     [&](const Status&, ByteView) { ++answered; });
    }
    REQUIRE(rig.sim.run_until([&] { return holder.held.size() == 2; }));
    std::optional<GroupOutcome> outcome;
    rig.group(0).collective(test::record_method, BodyWriter::of(as_bytes("x")), options,
                            [&](GroupOutcome all) { outcome = std::move(all); });
    rig.sim.run_for(10ms);
    REQUIRE(rig.services[1].received.size() == 1);
    REQUIRE(rig.services[2].received.empty());
    holder.held.back().reply({});
    holder.held.pop_back();
    REQUIRE(rig.sim.run_until([&] { return answered == 1; }));
    rig.sim.run_for(10ms);
    CHECK(rig.services[2].received.size() == 1);
    REQUIRE(rig.sim.run_until([&] { return outcome.has_value(); }));
    CHECK(outcome->status.ok());
    holder.held.clear();
}

TEST_CASE("a reply that is no array of numbers fails its own rank only") {
    for (const std::uint32_t n : {1u, 2u, 12u}) {
        for (const std::uint32_t bad : {0u, n / 2, n - 1}) {
            for (const bool ordered : {false, true}) {
                INFO(bad << " of " << n << (ordered ? ", in order" : ""));
                GroupRig rig(n);
                rig.answer = [bad](std::uint32_t rank, ByteView) {
                    return rank == bad ? std::vector<std::byte>(13) : number(1);
                };
                const Reduction sum{Reduction::Operation::sum, Reduction::Number::u64, ordered};
                for (const int caller : {-1, 0}) {
                    const GroupOutcome outcome =
                        rig.call(rig.group(caller), "x", {.timeout = 5s, .reduction = sum});
                    REQUIRE(outcome.ranks.size() == n);
                    for (const RankOutcome& one : outcome.ranks) {
                        CHECK(one.status.ok() == (one.rank != bad));
                    }
                    const Status& its = outcome.ranks[bad].status;
                    CHECK(its.code() == Code::invalid_argument);
                    CHECK(its.effect() == Effect::applied);
                    CHECK(its.stage() == Stage::executing);
                    CHECK(its.text().find("13 bytes") != std::string_view::npos);
                    CHECK(outcome.status.code() == Code::invalid_argument);
                    if (n == 1) CHECK(outcome.merged.empty());
                    else CHECK(as_number(outcome.merged) == n - 1);
                }
            }
        }
    }
}
