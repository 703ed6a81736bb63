// Ranges of numeric options, and the error text for values out of range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <weft/status.h>

#include "base/duration_text.h"

namespace weft::base {

// The unit of a number and of its bounds.
enum class Unit : std::uint8_t { number, cpu, bytes, us, ms };

constexpr std::int64_t ns_in(Unit unit) {
    return unit == Unit::us ? 1'000 : unit == Unit::ms ? 1'000'000 : 0;
}

struct Bounds {
    Unit unit = Unit::number;
    std::int64_t min = 0;
    std::int64_t max = 0;
    bool may_be_zero = false;  // Although below `min`: selects the default.

    // `value`: nanoseconds if a time span.
    constexpr bool contains(std::int64_t value) const {
        const std::int64_t scale = ns_in(unit) == 0 ? 1 : ns_in(unit);
        return (may_be_zero && value == 0) || (value >= min * scale && value <= max * scale);
    }
    // "milliseconds from 1 to 60000".
    std::string text() const {
        constexpr std::string_view names[] = {"a number", "a cpu number", "bytes", "microseconds",
                                              "milliseconds"};
        return (may_be_zero ? "0, or " : "") + std::string(names[static_cast<std::size_t>(unit)]) +
               " from " + std::to_string(min) + " to " + std::to_string(max);
    }
};

// One numeric member of `Options`. `get` returns time spans in nanoseconds; a value above
// INT64_MAX, such as a negative number made unsigned, becomes negative.
template <class Options>
struct RangedOption {
    std::string_view name;  // Of the member.
    Bounds bounds;
    std::int64_t (*get)(const Options&);
};

// INVALID_ARGUMENT: "RuntimeOptions::peers_max is 0: expected a number from 1 to 65536".
inline Status out_of_range(std::string_view owner, std::string_view name, std::int64_t value,
                           const Bounds& bounds) {
    return fail(
        Code::invalid_argument,
        std::string(owner) + "::" + std::string(name) + " is " +
            (ns_in(bounds.unit) == 0 ? std::to_string(value) : duration_text(Duration(value))) +
            ": expected " + bounds.text());
}

// Fails for the first option that is out of its range.
template <class Options, class Table>
Status validate_ranges(std::string_view owner, const Options& options, const Table& table) {
    for (const auto& one : table) {
        const std::int64_t value = one.get(options);
        if (!one.bounds.contains(value)) return out_of_range(owner, one.name, value, one.bounds);
    }
    return {};
}

}  // namespace weft::base
