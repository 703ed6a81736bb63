// Numbers as options take them.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>

namespace weft::tool {

// A whole number in decimal digits, no sign, from `least` to `most`: what is larger or negative is
// refused, not cut. For Option::transform().
CLI::Validator whole_number(std::uint64_t least,
                            std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// Ranks of groups.
inline CLI::Validator rank_number() {
    return whole_number(0, std::numeric_limits<std::uint32_t>::max());
}

}  // namespace weft::tool
