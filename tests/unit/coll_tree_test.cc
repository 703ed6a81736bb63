#include <vector>

#include "coll/tree.h"
#include "support/catch.h"

using weft::coll::Interval;
using weft::coll::rank_at;
using weft::coll::split;

namespace {

// Visits every position below, counting; returns the depth.
int walk(Interval below, std::uint32_t fanout, std::vector<int>& visits) {
    int depth = 0;
    std::uint32_t last_size = ~0u;
    for (const Interval child : split(below, fanout)) {
        REQUIRE(child.first >= below.first);
        REQUIRE(child.last <= below.last);
        REQUIRE(child.size() >= 1);
        REQUIRE(child.size() <= last_size);
        last_size = child.size();
        ++visits[child.first];
        depth = std::max(depth, 1 + walk({child.first + 1, child.last}, fanout, visits));
    }
    return depth;
}

int ceil_log(std::uint32_t n, std::uint32_t k) {
    int depth = 0;
    for (std::uint64_t span = 1; span < n; span *= k) ++depth;
    return depth;
}

}  // namespace

TEST_CASE("every k-nomial tree spans its group once, largest subtree first, in log depth") {
    for (std::uint32_t fanout = 2; fanout <= 9; ++fanout) {
        for (std::uint32_t n = 1; n <= 512; ++n) {
            std::vector<int> visits(n + 1, 0);
            const int depth = walk({1, n}, fanout, visits);  // Position 0 is the root.
            for (std::uint32_t position = 1; position < n; ++position) {
                REQUIRE(visits[position] == 1);
            }
            REQUIRE(depth <= ceil_log(n, fanout));
        }
    }
}

TEST_CASE("a root outside the group gives every member to somebody") {
    for (std::uint32_t n = 1; n <= 70; ++n) {
        std::vector<int> visits(n + 1, 0);
        // The outside root stands before position 0, so shift by one to stay unsigned.
        walk({1, n + 1}, 4, visits);
        for (std::uint32_t position = 1; position <= n; ++position) REQUIRE(visits[position] == 1);
    }
}

TEST_CASE("ranks rotate round the root") {
    CHECK(rank_at(0, 3, 5) == 3);
    CHECK(rank_at(1, 3, 5) == 4);
    CHECK(rank_at(2, 3, 5) == 0);
    CHECK(rank_at(4, 4294967290u, 4294967295u) == 4294967294u);
}

TEST_CASE("the binomial tree of eight is the known one") {
    CHECK(split({1, 8}, 2) == std::vector<Interval>{{4, 8}, {2, 4}, {1, 2}});
}
