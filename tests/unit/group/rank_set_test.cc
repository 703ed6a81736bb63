#include <weft/rank_set.h>

#include <set>

#include "base/random.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;

namespace {

// The ranges that a RankSet of these numbers must have.
std::vector<RankSet::Range> ranges_of(const std::set<std::uint32_t>& ranks) {
    std::vector<RankSet::Range> ranges;
    for (const std::uint32_t rank : ranks) {
        if (!ranges.empty() && std::uint64_t{ranges.back().last} + 1 == rank) {
            ranges.back().last = rank;
        } else {
            ranges.push_back({rank, rank});
        }
    }
    return ranges;
}

}  // namespace

TEST_CASE("a RankSet agrees with a set of numbers") {
    for (std::uint64_t run = 0; run < 300; ++run) {
        const std::uint64_t seed = test::seed_of(run);
        INFO("TEST_SEED=" << seed);
        base::SeededRandom random(seed);
        RankSet set;
        std::set<std::uint32_t> numbers;
        // Half of the runs use the largest ranks.
        const std::uint32_t from = random.next() % 2 == 0 ? 0 : UINT32_MAX - 99;
        for (int step = 0; step < 40; ++step) {
            const auto first = static_cast<std::uint32_t>(random.next() % 100);
            const auto more = static_cast<std::uint32_t>(random.next() % 3 * (random.next() % 9));
            const std::uint32_t last = std::min(first + more, 99u);
            set.add(from + first, from + last);
            for (std::uint32_t rank = first; rank <= last; ++rank) numbers.insert(from + rank);
            REQUIRE(set.ranges() == ranges_of(numbers));
            REQUIRE(set.size() == numbers.size());
        }
        for (std::uint32_t rank = 0; rank < 100; ++rank) {
            REQUIRE(set.contains(from + rank) == (numbers.count(from + rank) == 1));
        }
    }
}

TEST_CASE("a RankSet may be empty or hold all ranks") {
    RankSet set;
    CHECK(set.empty());
    CHECK(set.size() == 0);
    CHECK_FALSE(set.contains(0));
    set.add(0, UINT32_MAX);
    CHECK(set.size() == std::uint64_t{1} << 32);
    CHECK(set.contains(0));
    CHECK(set.contains(UINT32_MAX));
    set.add(7);
    CHECK(set.ranges().size() == 1);
    CHECK((RankSet{5, 3, 4} == RankSet{3, 4, 5}));
    CHECK_FALSE((RankSet{3, 5} == RankSet{3, 4, 5}));
}
