// Validators for the values of options.
#pragma once

#include <cstdint>
#include <limits>
#include <string>

#include <CLI/CLI.hpp>

#include <weft/group_view.h>
#include <weft/time.h>

namespace weft::tool {

// A whole number in decimal digits, no sign, from `least` to `most`: larger and negative values
// are refused, not truncated. For Option::transform().
CLI::Validator whole_number(std::uint64_t least,
                            std::uint64_t most = std::numeric_limits<std::uint64_t>::max());

// Ranks of groups.
inline CLI::Validator rank_number() { return whole_number(0, GroupView::rank_max); }

// Bytes, with a suffix or none: 64, 4KiB, 1m. For Option::transform().
CLI::Validator byte_count(std::uint64_t least, std::uint64_t most);

// Decimal digits, with a point or none. For Option::check().
CLI::Validator decimal_number(double least, double most);

// A duration as parse_duration() accepts it. For Option::check().
CLI::Validator time_span(Duration least, Duration most);

// The longest time that a command waits for one reply, or between two.
inline constexpr Duration time_span_max = 24h;

// For files, directories and names that have no default. For Option::check().
CLI::Validator not_empty();

}  // namespace weft::tool
