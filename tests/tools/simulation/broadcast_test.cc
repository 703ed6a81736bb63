// The model that `weft sim --scenario bcast` measures against, and its network, checked by hand and
// against each other.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "coll/rank_order.h"
#include "simulation/broadcast_model.h"
#include "simulation/broadcast_net.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::scenarios;
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
    plan->rank_order =
        std::make_shared<coll::RankOrder>(coll::RankOrder::Params{view, {}, root, false});
    plan->tree = tree;
    return plan;
}

Children as_split(const coll::Tree& tree) {
    return [tree](Interval below) { return coll::split(below, tree); };
}

// CaRT's rule for one rank: its children are the ranks that differ from it in one digit, which is
// below all its own digits.
std::vector<std::uint32_t> by_digits(std::uint32_t self, std::uint32_t n, std::uint32_t ratio) {
    std::vector<std::uint32_t> children;
    for (std::uint32_t place = 1; place < n && self / place % ratio == 0; place *= ratio) {
        for (std::uint32_t digit = 1; digit < ratio; ++digit) {
            if (self + digit * place < n) children.push_back(self + digit * place);
        }
    }
    return children;
}

void compare_to_digits(Interval subtree, std::uint32_t n, std::uint32_t ratio) {
    const std::vector<Interval> children = cart_children({subtree.first + 1, subtree.last}, ratio);
    std::vector<std::uint32_t> firsts;
    std::uint32_t next = subtree.first + 1;
    for (const Interval child : children) {
        REQUIRE(child.first == next);  // None is left out, none reached twice.
        next = child.last;
        firsts.push_back(child.first);
        compare_to_digits(child, n, ratio);
    }
    REQUIRE(next == subtree.last);
    REQUIRE(firsts == by_digits(subtree.first, n, ratio));
}

}  // namespace

TEST_CASE("the least time of a broadcast equals manually computed values") {
    // With 1 and 2 the root reaches one rank at each of 3, 4, 5, …; the rank reached at 3 reaches
    // others from 6 on, the rank reached at 4 from 7 on.
    const std::vector<int> least{0, 3, 4, 5, 6, 6, 7, 7, 7};
    for (std::uint32_t n = 1; n <= least.size(); ++n) {
        INFO(n << " ranks");
        CHECK(least_time(n, small) == Duration(least[n - 1]));
    }
    CHECK(least_time(2, {300ns, 2700ns}) == 3us);
    // When messages arrive at once, each rank sends in every step: the number doubles each time.
    CHECK(least_time(1024, {1ns, 0ns}) == 10ns);
    CHECK(least_time(1025, {1ns, 0ns}) == 11ns);
}

TEST_CASE("the time of a tree equals manually computed values") {
    const Children flat = [](Interval below) {
        std::vector<Interval> children;
        for (std::uint32_t at = below.first; at < below.last; ++at) {
            children.push_back({at, at + 1});
        }
        return children;
    };
    const Children chain = [](Interval below) { return std::vector<Interval>{below}; };
    CHECK(time_of(1, small, flat).delivered == 0ns);
    CHECK(time_of(1, small, flat).acknowledged == 0ns);
    // Reached at 3 and 4, replies at 6 and 7.
    CHECK(time_of(3, small, flat).delivered == 4ns);
    CHECK(time_of(3, small, flat).acknowledged == 7ns);
    CHECK(time_of(3, small, chain).delivered == 6ns);
    CHECK(time_of(3, small, chain).acknowledged == 12ns);
    // Two subtrees with replies at the same moment: a port receives one after the other. Position 1
    // is reached at 3 and has one child, which is reached at 6 and replies at 9: the whole reply
    // arrives at 12. Positions 3 to 9 are reached at 4 to 10; the replies of 3 to 8 arrive at 7 to
    // 12, that of 9 at 13. The second reply at 12 waits, and then the last.
    const Children mixed = [&](Interval below) {
        if (below.size() < 9) return flat(below);
        std::vector<Interval> children{{1, 3}};
        for (std::uint32_t at = 3; at < below.last; ++at) children.push_back({at, at + 1});
        return children;
    };
    CHECK(time_of(10, small, mixed).delivered == 10ns);
    CHECK(time_of(10, small, mixed).acknowledged == 14ns);
}

TEST_CASE("CaRT's order of ranks follows their digits") {
    CHECK(cart_children({1, 8}, 2) == std::vector<Interval>{{1, 2}, {2, 4}, {4, 8}});
    for (std::uint32_t n = 1; n <= 200; ++n) {
        for (const std::uint32_t ratio : {2u, 3u, 4u, 10u, 32u}) {
            INFO(n << " ranks, ratio " << ratio);
            compare_to_digits({0, n}, n, ratio);
        }
    }
}

TEST_CASE("collective states in the net take the modeled time and two messages a rank") {
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
                CHECK(net.delivered() == time.delivered);
                CHECK(net.acknowledged() == time.acknowledged);
                CHECK(net.messages() == 2 * (n - 1));
                CHECK(net.reports() == 1);
                CHECK(net.malformed() == 0);
                CHECK(net.is_over());
                for (std::uint32_t rank = 0; rank < n; ++rank) {
                    CHECK(net.history(rank).runs == 1);
                }
            }
        }
    }
}

TEST_CASE("a rank that dies at any moment fails alone, and all others succeed") {
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
                REQUIRE(net.reports() == 1);
                REQUIRE(net.is_over());
                REQUIRE(net.acknowledged() <= 2 * detection + 2 * plain);
                for (const coll::Outcome& outcome : net.outcomes()) {
                    const std::uint32_t here = plan->rank_order->at(outcome.position).rank;
                    REQUIRE(net.history(here).runs <= 1);
                    if (here != rank) REQUIRE(outcome.status.ok());
                    if (outcome.status.ok()) REQUIRE(net.history(here).runs == 1);
                    if (here == rank && at == 0ns) {
                        REQUIRE(outcome.status.code() == Code::unavailable);
                        REQUIRE(outcome.status.peer() == "sim://" + std::to_string(rank));
                        REQUIRE(net.history(here).runs == 0);
                    }
                }
            }
        }
    }
}

TEST_CASE("a root requests every member of a dead group and reports a failure for each") {
    // All but the root are dead from the start: the root requests each of them and has a failure
    // for each.
    constexpr std::uint32_t n = 20;
    std::vector<Death> deaths;
    for (std::uint32_t rank = 1; rank < n; ++rank) deaths.push_back({rank, BroadcastNet::start});
    BroadcastNet net({plan_of(n, coll::Tree{}), small, 1ms, std::move(deaths), 60s});
    net.run();
    CHECK(net.reports() == 1);
    std::uint32_t failed = 0;
    for (const coll::Outcome& outcome : net.outcomes()) failed += !outcome.status.ok();
    CHECK(failed == n - 1);
    CHECK(net.requests() == n - 1);
}

TEST_CASE("the root measures the cost of messages through every depth of the tree") {
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
