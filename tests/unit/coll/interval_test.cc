// Sets of positions, compared with a model.
#include <random>
#include <set>

#include "coll/interval.h"
#include "support/catch.h"
#include "support/seed.h"

using namespace weft;

namespace coll_interval {

using coll::Interval;
using coll::IntervalSet;

constexpr std::uint32_t end = 48;

std::vector<Interval> intervals_of(const std::set<std::uint32_t>& positions) {
    std::vector<Interval> all;
    for (const std::uint32_t at : positions) {
        if (!all.empty() && all.back().last == at) ++all.back().last;
        else all.push_back({at, at + 1});
    }
    return all;
}

std::vector<Interval> absent(const std::set<std::uint32_t>& positions, Interval of) {
    std::set<std::uint32_t> gaps;
    for (std::uint32_t at = of.first; at < of.last; ++at) {
        if (positions.count(at) == 0) gaps.insert(at);
    }
    return intervals_of(gaps);
}

TEST_CASE("intervals: a set of intervals equals the set of their positions") {
    for (std::uint64_t index = 0; index < 2000; ++index) {
        std::mt19937_64 random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        IntervalSet set;
        std::set<std::uint32_t> model;
        for (int i = 0; i < 40; ++i) {
            const auto first = static_cast<std::uint32_t>(random() % end);
            const std::uint32_t most = random() % 4 == 0 ? end - first + 1 : 4;
            const Interval of{first, std::min<std::uint32_t>(
                                         end, first + static_cast<std::uint32_t>(random() % most))};
            REQUIRE(set.missing(of) == absent(model, of));
            REQUIRE(set.contains(of) == absent(model, of).empty());
            const auto gaps = absent(model, of);
            REQUIRE(set.first_missing(of) == (gaps.empty() ? of.last : gaps.front().first));
            REQUIRE(set.contains(of.first) == (model.count(of.first) > 0));
            if (random() % 2 == 0) continue;
            const auto fresh = absent(model, of);
            REQUIRE(set.add(of) == fresh);
            for (std::uint32_t at = of.first; at < of.last; ++at) model.insert(at);
            REQUIRE(set.intervals() == intervals_of(model));
        }
    }
}

TEST_CASE("intervals: a set added to another one gives the union of both") {
    for (std::uint64_t index = 0; index < 2000; ++index) {
        std::mt19937_64 random(test::seed_of(index));
        INFO("TEST_SEED=" << test::seed_of(index));
        IntervalSet set, other;
        std::set<std::uint32_t> model;
        const std::uint64_t most = random() % end;
        for (std::uint64_t i = 0; i < most; ++i) {
            const auto at = static_cast<std::uint32_t>(random() % end);
            (random() % 2 == 0 ? set : other).add({at, at + 1});
            model.insert(at);
        }
        set.add(other);
        REQUIRE(set.intervals() == intervals_of(model));
    }
}

TEST_CASE("intervals: a set holds the last positions of the number range") {
    const std::uint32_t most = ~std::uint32_t{0};
    IntervalSet set;
    CHECK(set.add({most - 1, most}) == std::vector<Interval>{{most - 1, most}});
    CHECK(set.add({0, most}) == std::vector<Interval>{{0, most - 1}});
    CHECK(set.intervals() == std::vector<Interval>{{0, most}});
    CHECK(set.missing({0, most}).empty());
    CHECK(set.first_missing({0, most}) == most);
    CHECK(set.first_missing({5, 5}) == 5);
    CHECK(set.contains({5, 5}));
}

}  // namespace coll_interval
