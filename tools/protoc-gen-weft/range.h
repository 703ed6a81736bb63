// The range check of numeric options.
#pragma once

#include <cstdint>
#include <string>

namespace weft::plugin {

// "priority: 8 is not from 0 to 7"; empty: the value is in range.
inline std::string why_out_of_range(const char* option, std::int64_t value, std::int64_t least,
                                    std::int64_t most) {
    if (value >= least && value <= most) return {};
    return std::string(option) + ": " + std::to_string(value) + " is not from " +
           std::to_string(least) + " to " + std::to_string(most);
}

}  // namespace weft::plugin
