#include <algorithm>
#include <vector>

#include "coll/tree.h"
#include "support/catch.h"

using weft::coll::Interval;
using weft::coll::rank_at;
using weft::coll::Shape;
using weft::coll::split;
using weft::coll::Tree;
using weft::coll::tree_for;

namespace {

struct Walk {
    std::vector<int> visits;  // By position.
    std::uint32_t depth = 0;
    std::size_t children_most = 0;
};

void walk(Interval below, const Tree& tree, std::uint32_t depth, Walk& seen) {
    REQUIRE(tree.is_possible(below));
    const std::vector<Interval> children = split(below, tree);
    seen.children_most = std::max(seen.children_most, children.size());
    std::uint32_t last_size = ~0u;
    for (const Interval child : children) {
        REQUIRE(child.first >= below.first);
        REQUIRE(child.last <= below.last);
        REQUIRE(child.size() >= 1);
        REQUIRE(child.size() <= last_size);  // Largest first.
        last_size = child.size();
        ++seen.visits[child.first];
        seen.depth = std::max(seen.depth, depth + 1);
        walk({child.first + 1, child.last}, tree, depth + 1, seen);
    }
}

// Of n ranks with the root at position 0; each other rank must be reached once.
Walk spanned(std::uint32_t n, const Tree& tree) {
    Walk seen{std::vector<int>(n, 0)};
    walk({1, n}, tree, 0, seen);
    REQUIRE(seen.visits[0] == 0);
    REQUIRE(std::count(seen.visits.begin() + 1, seen.visits.end(), 1) == n - 1);
    return seen;
}

std::uint32_t ceil_log(std::uint64_t n, std::uint64_t k) {
    std::uint32_t depth = 0;
    for (std::uint64_t span = 1; span < n; span *= k) ++depth;
    return depth;
}

// When the last position of `below` has the message, if its node has it at `now`: each message
// keeps the node busy for `busy` and arrives `latency` after that.
double last_of(Interval below, const Tree& tree, double busy, double latency, double now = 0) {
    double last = now;
    double free = now;
    for (const Interval child : split(below, tree)) {
        free += busy;
        last = std::max(
            last, last_of({child.first + 1, child.last}, tree, busy, latency, free + latency));
    }
    return last;
}

// The least time in which any schedule reaches n ranks, found by trying each moment: a rank with
// the message sends it to the next rank whenever it is free. Independent of split().
double bound(std::uint32_t n, double busy, double latency) {
    std::vector<double> next{busy +
                             latency};  // When a message that starts next would arrive, a heap.
    double last = 0;
    const auto later = [](double a, double b) { return a > b; };
    for (std::uint32_t reached = 1; reached < n; ++reached) {
        std::pop_heap(next.begin(), next.end(), later);
        last = next.back();
        next.back() = last + busy;
        std::push_heap(next.begin(), next.end(), later);
        next.push_back(last + busy + latency);
        std::push_heap(next.begin(), next.end(), later);
    }
    return last;
}

}  // namespace

TEST_CASE("every tree spans its group once, largest subtree first") {
    for (std::uint32_t n = 1; n <= 512; ++n) {
        CHECK(spanned(n, {Shape::flat}).depth == (n > 1 ? 1 : 0));
        for (std::uint8_t fanout = 2; fanout <= 9; ++fanout) {
            CHECK(spanned(n, {Shape::k_nomial, fanout}).depth <= ceil_log(n, fanout));
            const Walk ary = spanned(n, {Shape::k_ary, fanout});
            CHECK(ary.children_most <= fanout);
            CHECK(ary.depth <= ceil_log(std::uint64_t{n} * (fanout - 1) + 1, fanout));
        }
        for (const std::uint16_t latency : {1, 20, 36, 256}) {
            for (const std::uint8_t fanout : {2, 3, 16, 64}) {
                CHECK(spanned(n, {Shape::greedy, fanout, latency}).children_most <= fanout);
            }
        }
    }
}

TEST_CASE("a greedy tree is as fast as the best possible one, but for the cap on children") {
    for (const auto& [busy, latency] : {std::pair{0.3, 2.7}, {3.0, 15.0}, {1.0, 1.0}}) {
        Tree tree = tree_for(busy, latency);
        tree.fanout = weft::coll::fanout_max;
        for (const std::uint32_t n : {1u, 2u, 3u, 17u, 64u, 100u, 512u}) {
            INFO(n << " ranks, " << busy << " and " << latency);
            CHECK(last_of({1, n}, tree, busy, latency) <= bound(n, busy, latency) * 1.0001);
        }
        tree.fanout = Tree().fanout;
        for (const std::uint32_t n : {1024u, 16384u, 131072u}) {
            INFO(n << " ranks, " << busy << " and " << latency);
            CHECK(last_of({1, n}, tree, busy, latency) <= bound(n, busy, latency) * 1.15);
        }
    }
}

TEST_CASE("implausible costs give a valid tree") {
    for (const auto& [busy, latency] :
         {std::pair{0.0, 1.0}, {1.0, 0.0}, {-1.0, 1.0}, {1.0, 1e300}}) {
        CHECK(tree_for(busy, latency).is_possible({1, 1000}));
    }
    CHECK(tree_for(1, 5) == Tree{});
}

TEST_CASE("a root outside the group gives every member a parent") {
    for (std::uint32_t n = 1; n <= 70; ++n) {
        // The root is in front of position 0; shifted by one, to stay unsigned.
        spanned(n + 1, {Shape::k_nomial, 4});
        spanned(n + 1, {});
    }
}

TEST_CASE("positions map to ranks that rotate round the root") {
    CHECK(rank_at(0, 3, 5) == 3);
    CHECK(rank_at(1, 3, 5) == 4);
    CHECK(rank_at(2, 3, 5) == 0);
    CHECK(rank_at(4, 4294967290u, 4294967295u) == 4294967294u);
}

TEST_CASE("the binomial tree of eight ranks is the textbook one") {
    CHECK(split({1, 8}, {Shape::k_nomial, 2}) == std::vector<Interval>{{4, 8}, {2, 4}, {1, 2}});
}
