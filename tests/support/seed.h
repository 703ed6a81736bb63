// Where a randomised test starts. TEST_SEED=n repeats the run that printed it; `make soak` gives
// fresh ones.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace weft::test {

// The seed of the index-th run of a test: 1, 2, ... or from TEST_SEED on.
inline std::uint64_t seed_of(std::uint64_t index) {
    const char* given = std::getenv("TEST_SEED");
    return (given ? std::strtoull(given, nullptr, 10) : 1) + index;
}

}  // namespace weft::test
