// Time in weft: durations and instants of one steady clock, in nanoseconds.
//
// No wall clock appears anywhere in the library; the wire carries remaining microseconds.
#pragma once

#include <chrono>
#include <cstdint>
#include <limits>

namespace weft {

using Duration = std::chrono::nanoseconds;
using TimePoint = std::chrono::time_point<std::chrono::steady_clock, Duration>;

using namespace std::chrono_literals;  // 5ms, 30s in code with `using namespace weft`.

// Later than every deadline.
inline constexpr TimePoint never = TimePoint::max();

// `at + by`, stopping at `never` instead of overflowing.
constexpr TimePoint saturating_add(TimePoint at, Duration by) {
    if (by > Duration::zero() && at > never - by) return never;
    return at + by;
}

}  // namespace weft
