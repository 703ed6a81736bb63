// The model that `weft sim --scenario bcast` measures against, and its network, by hand and against
// one another.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "coll/roster.h"
#include "sim/broadcast_model.h"
#include "sim/broadcast_net.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::tool;
using coll::Interval;

namespace {

constexpr LinkCost small{1ns, 2ns};

std::shared_ptr<const coll::Plan> plan_of(std::uint32_t n, const coll::Tree& tree,
                                          std::uint32_t root = 0) {
    std::vector<Member> members;
    for (std::uint32_t rank = 0; rank < n; ++rank) {
        members.push_back({rank, {"sim://" + std::to_string(rank)}});
    }
    const GroupView view = GroupView::make("test", 1, std::move(members)).value();
    auto plan = std::make_shared<coll::Plan>();
    plan->roster = std::make_shared<coll::Roster>(coll::Roster::Parts{view, {}, root, false});
    plan->tree = tree;
    return plan;
}

Children as_split(const coll::Tree& tree) {
    return [tree](Interval below) { return coll::split(below, tree); };
}

// CaRT's rule, one rank at a time: the children of a rank are those that differ from it in one
// digit, which is below all its own digits.
std::vector<std::uint32_t> by_digits(std::uint32_t self, std::uint32_t n, std::uint32_t ratio) {
    std::vector<std::uint32_t> children;
    for (std::uint32_t place = 1; place < n && self / place % ratio == 0; place *= ratio) {
        for (std::uint32_t digit = 1; digit < ratio; ++digit) {
            if (self + digit * place < n) children.push_back(self + digit * place);
        }
    }
    return children;
}

void compare_to_digits(Interval mine, std::uint32_t n, std::uint32_t ratio) {
    const std::vector<Interval> children = cart_children({mine.first + 1, mine.last}, ratio);
    std::vector<std::uint32_t> firsts;
    std::uint32_t next = mine.first + 1;
    for (const Interval child : children) {
        REQUIRE(child.first == next);  // None is left out, none told twice.
        next = child.last;
        firsts.push_back(child.first);
        compare_to_digits(child, n, ratio);
    }
    REQUIRE(next == mine.last);
    REQUIRE(firsts == by_digits(mine.first, n, ratio));
}

}  // namespace

TEST_CASE("the least time of a broadcast, by hand") {
    // With 1 and 2 the root reaches one at each of 3, 4, 5, …; who was told at 3 from 6 on, at 4
    // from 7 on.
    const std::vector<int> least{0, 3, 4, 5, 6, 6, 7, 7, 7};
    for (std::uint32_t n = 1; n <= least.size(); ++n) {
        INFO(n << " ranks");
        CHECK(least_time(n, small) == Duration(least[n - 1]));
    }
    CHECK(least_time(2, {300ns, 2700ns}) == 3us);
    // Where a message is there at once each sends in every step: twice as many each time.
    CHECK(least_time(1024, {1ns, 0ns}) == 10ns);
    CHECK(least_time(1025, {1ns, 0ns}) == 11ns);
}

TEST_CASE("the time of a tree, by hand") {
    const Children flat = [](Interval below) {
        std::vector<Interval> children;
        for (std::uint32_t at = below.first; at < below.last; ++at) {
            children.push_back({at, at + 1});
        }
        return children;
    };
    const Children chain = [](Interval below) { return std::vector<Interval>{below}; };
    CHECK(time_of(1, small, flat).told == 0ns);
    CHECK(time_of(1, small, flat).acknowledged == 0ns);
    // Told at 3 and 4, answers at 6 and 7.
    CHECK(time_of(3, small, flat).told == 4ns);
    CHECK(time_of(3, small, flat).acknowledged == 7ns);
    CHECK(time_of(3, small, chain).told == 6ns);
    CHECK(time_of(3, small, chain).acknowledged == 12ns);
    // Two subtrees whose answers come at one moment: a port takes one after the other. Position 1
    // is told at 3 and has one below it, told at 6, which answers at 9: all of it is here at 12.
    // 3 to 9 are told at 4 to 10, and the answers of 3 to 8 are here at 7 to 12, that of 9 at 13:
    // the second of those at 12 waits, and then the last.
    const Children mixed = [&](Interval below) {
        if (below.size() < 9) return flat(below);
        std::vector<Interval> children{{1, 3}};
        for (std::uint32_t at = 3; at < below.last; ++at) children.push_back({at, at + 1});
        return children;
    };
    CHECK(time_of(10, small, mixed).told == 10ns);
    CHECK(time_of(10, small, mixed).acknowledged == 14ns);
}

TEST_CASE("CaRT's order is that of its digits") {
    CHECK(cart_children({1, 8}, 2) == std::vector<Interval>{{1, 2}, {2, 4}, {4, 8}});
    for (std::uint32_t n = 1; n <= 200; ++n) {
        for (const std::uint32_t ratio : {2u, 3u, 4u, 10u, 32u}) {
            INFO(n << " ranks, ratio " << ratio);
            compare_to_digits({0, n}, n, ratio);
        }
    }
}

TEST_CASE("parts over the network take the time of the model, and two messages for each rank") {
    for (const LinkCost& cost : {LinkCost{300ns, 2700ns}, LinkCost{3us, 15us}, small}) {
        for (const std::uint32_t n : {1u, 2u, 3u, 16u, 100u, 1000u}) {
            for (const coll::Tree& tree :
                 {coll::Tree{}, coll::Tree{coll::Shape::k_nomial, 4, 1},
                  coll::Tree{coll::Shape::k_ary, 3, 1}, coll::Tree{coll::Shape::flat}}) {
                INFO(n << " ranks, " << cost.busy.count() << " ns, shape "
                       << static_cast<int>(tree.shape));
                BroadcastNet net({plan_of(n, tree, n / 3), cost, 1ms, {}, 10s});
                net.run();
                const BroadcastTime time = time_of(n, cost, as_split(tree));
                CHECK(net.told() == time.told);
                CHECK(net.acknowledged() == time.acknowledged);
                CHECK(net.messages() == 2 * (n - 1));
                CHECK(net.tells() == 1);
                CHECK(net.malformed() == 0);
                CHECK(net.is_over());
                for (std::uint32_t rank = 0; rank < n; ++rank) {
                    CHECK(net.story(rank).runs == 1);
                }
            }
        }
    }
}

TEST_CASE("whichever rank dies, and whenever, its outcome is its own and all others are told") {
    constexpr std::uint32_t n = 23;
    const auto plan = plan_of(n, coll::Tree{}, 5);
    const Duration plain = time_of(n, small, as_split(plan->tree)).acknowledged;
    for (const Duration detection : {100ns, Duration(3s)}) {
        for (std::uint32_t rank = 0; rank < n; ++rank) {
            if (rank == 5) continue;
            for (Duration at{}; at <= plain; ++at) {
                INFO("rank " << rank << " dies at " << at.count() << " ns");
                BroadcastNet net({plan, small, detection, {{rank, BroadcastNet::start + at}}, 60s});
                net.run();
                REQUIRE(net.tells() == 1);
                REQUIRE(net.is_over());
                REQUIRE(net.acknowledged() <= 2 * detection + 2 * plain);
                for (const coll::Outcome& outcome : net.outcomes()) {
                    const std::uint32_t who = plan->roster->at(outcome.position).rank;
                    REQUIRE(net.story(who).runs <= 1);
                    if (who != rank) REQUIRE(outcome.status.ok());
                    if (outcome.status.ok()) REQUIRE(net.story(who).runs == 1);
                    if (who == rank && at == 0ns) {
                        REQUIRE(outcome.status.code() == Code::unavailable);
                        REQUIRE(outcome.status.peer() == "sim://" + std::to_string(rank));
                        REQUIRE(net.story(who).runs == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("a root whose group is dead asks each of them, and has a failure of each") {
    // All but the root are dead from the start: each is asked by the root, which is told of each.
    constexpr std::uint32_t n = 20;
    std::vector<Death> deaths;
    for (std::uint32_t rank = 1; rank < n; ++rank) deaths.push_back({rank, BroadcastNet::start});
    BroadcastNet net({plan_of(n, coll::Tree{}), small, 1ms, std::move(deaths), 60s});
    net.run();
    CHECK(net.tells() == 1);
    std::uint32_t failed = 0;
    for (const coll::Outcome& outcome : net.outcomes()) failed += !outcome.status.ok();
    CHECK(failed == n - 1);
    CHECK(net.questions() == n - 1);
}

TEST_CASE("the root learns what messages cost, whoever is between it and the last ones") {
    for (const std::uint32_t n : {3u, 12u, 200u, 5000u}) {
        for (const LinkCost& cost : {LinkCost{300ns, 2700ns}, LinkCost{3us, 15us}}) {
            INFO(n << " ranks");
            BroadcastNet net({plan_of(n, {}, n / 3), cost, 1ms, {}, 10s});
            net.run();
            const Duration trip = 2 * (cost.busy + cost.latency);
            CHECK(net.measured().busy_ns == static_cast<std::uint32_t>(cost.busy.count()));
            CHECK(net.measured().trip_ns == static_cast<std::uint32_t>(trip.count()));
        }
    }
}
