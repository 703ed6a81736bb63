#include "perf/histogram.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "support/catch.h"

using weft::tool::Histogram;

TEST_CASE("an empty histogram returns 0") {
    const Histogram histogram;
    CHECK(histogram.count() == 0);
    CHECK(histogram.mean() == 0);
    CHECK(histogram.percentile(0.5) == 0);
}

TEST_CASE("values below 256 are exact") {
    for (std::uint64_t value = 0; value < 256; ++value) {
        Histogram histogram;
        histogram.record(value);
        CHECK(histogram.percentile(0.5) == static_cast<double>(value));
    }
}

TEST_CASE("a histogram returns every value within 1 %, the largest included") {
    weft::base::SeededRandom random(7);
    for (int i = 0; i < 20000; ++i) {
        const std::uint64_t value = random.next() >> (random.next() % 64);
        Histogram histogram;
        histogram.record(value);
        const double back = histogram.percentile(1);
        CHECK(std::abs(back - static_cast<double>(value)) <= 0.005 * static_cast<double>(value));
    }
}

TEST_CASE("percentiles agree with the sorted values within 1 %") {
    weft::base::SeededRandom random(11);
    for (int round = 0; round < 20; ++round) {
        Histogram histogram;
        std::vector<std::uint64_t> values;
        const std::size_t count = 1 + random.next() % 5000;
        for (std::size_t i = 0; i < count; ++i) {
            // Typical latencies: most near a mode, some far out.
            const std::uint64_t value = 300 + random.next() % 50 +
                                        (random.next() % 100 == 0 ? random.next() % 10'000'000 : 0);
            values.push_back(value);
            histogram.record(value);
        }
        std::sort(values.begin(), values.end());
        for (const double share : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
            const auto rank = std::max<std::size_t>(
                1, static_cast<std::size_t>(share * static_cast<double>(count) + 0.5));
            const auto exact = static_cast<double>(values[rank - 1]);
            CHECK(std::abs(histogram.percentile(share) - exact) <= 0.01 * exact);
        }
        CHECK(histogram.count() == count);
    }
}
