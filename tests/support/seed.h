// The first seed of a randomised test. TEST_SEED=n repeats the run that printed it; `make soak`
// passes fresh seeds.
#pragma once

#include <cstdint>
#include <cstdlib>

namespace weft::test {

// A number from the environment.
inline std::uint64_t setting(const char* name, std::uint64_t otherwise) {
    const char* text = std::getenv(name);
    return text ? std::strtoull(text, nullptr, 10) : otherwise;
}

// The seed of the index-th run of a test: 1, 2, ... or from TEST_SEED on.
inline std::uint64_t seed_of(std::uint64_t index) { return setting("TEST_SEED", 1) + index; }

}  // namespace weft::test
