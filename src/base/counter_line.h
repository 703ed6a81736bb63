// Time by a counter that runs steadily: a straight line through the last pair of counter and kernel
// time. It is valid for a window of a millisecond; then the caller reads the next pair.
//
// Never goes back while the counter does not. A line that runs ahead of the kernel is slowed, as by
// adjtime(): in the next window it advances by the window less its lead. The duration of a tick is
// measured over growing intervals between pairs, up to a second.
//
// Pure: the caller reads counter and kernel. The error of a reading is at most that of the last
// two pairs together, plus a thousandth of a window.
#pragma once

#include <cstdint>

#include <weft/time.h>

#include "base/assert.h"

namespace weft::base {

class CounterLine {
  public:
    static constexpr Duration window = 1ms;

    // Whether at(ticks) is valid; otherwise read the kernel's time and pass() it.
    bool covers(std::uint64_t ticks) const { return ticks - ticks_ < window_ticks_; }
    // Requires: covers(ticks).
    TimePoint at(std::uint64_t ticks) const {
        WEFT_DCHECK(covers(ticks));
        const std::uint64_t ns = ((ticks - ticks_) * slope_) >> 32;
        return start_ + Duration(static_cast<std::int64_t>(ns));
    }

    // Records the kernel's time `now` at the counter value `ticks`. Returns `now`, or floor(ticks)
    // if that is later.
    TimePoint pass(std::uint64_t ticks, TimePoint now);
    // The earliest valid time at `ticks` without a new pair: the end of the window. After the
    // counter stepped back it is the window's begin, since `ticks` no longer bounds the returned
    // times.
    TimePoint floor(std::uint64_t ticks) const;

  private:
    void measure(std::uint64_t ticks, TimePoint now);
    void restart_measurement(std::uint64_t ticks, TimePoint now);

    // The line in use.
    std::uint64_t ticks_ = 0;
    std::uint64_t window_ticks_ = 0;  // 0: the duration of a tick is not measured yet.
    std::uint64_t slope_ = 0;         // Nanoseconds per tick, in units of 2^-32.
    TimePoint start_{};

    // The measurement of a tick: its begin, its length, and the result of the last one.
    std::uint64_t measured_from_ticks_ = 0;
    TimePoint measured_from_{};
    Duration stretch_ = Duration::zero();  // Zero: not begun.
    std::uint64_t ns_per_tick_ = 0;        // In units of 2^-32; 0: not measured yet.
};

}  // namespace weft::base
