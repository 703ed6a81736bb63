// Time by a counter that runs steadily: a straight line through the last pair of counter and
// kernel time, good for a window of a millisecond, then the kernel is asked for the next pair.
//
// Never goes back while the counter does not. A line that turns out to run ahead is not broken but
// slowed, as adjtime() does: the next window is told as long as the kernel's less what it is ahead.
// What a tick takes is measured over ever longer stretches between pairs, up to a second.
//
// Pure: the caller reads counter and kernel. The error of a reading is at most that of the last
// two pairs together, plus a thousandth of a window.
#pragma once

#include <cstdint>

#include <weft/time.h>

namespace weft::base {

class CounterLine {
  public:
    static constexpr Duration window = 1ms;

    // Whether at(ticks) may be told; else ask the kernel and pass() it.
    bool covers(std::uint64_t ticks) const { return ticks - ticks_ < window_ticks_; }
    // Requires: covers(ticks).
    TimePoint at(std::uint64_t ticks) const {
        const std::uint64_t ns = ((ticks - ticks_) * slope_) >> 32;
        return told_ + Duration(static_cast<std::int64_t>(ns));
    }

    // The kernel said `now` when the counter stood at `ticks`. What to tell: `now`, or what was
    // told last if that was more.
    TimePoint pass(std::uint64_t ticks, TimePoint now);
    // The least that may be told at `ticks`, where no pair could be had: the end of the window. A
    // counter that stepped back says nothing about what was told; then it is the window's begin.
    TimePoint floor(std::uint64_t ticks) const;

  private:
    void measure(std::uint64_t ticks, TimePoint now);
    void begin_measuring(std::uint64_t ticks, TimePoint now);

    // The line in use.
    std::uint64_t ticks_ = 0;
    std::uint64_t window_ticks_ = 0;  // 0: how long a tick takes is not known yet.
    std::uint64_t slope_ = 0;         // Nanoseconds per tick, in units of 2^-32.
    TimePoint told_{};

    // The measure of a tick: from where, how long the next one takes, what the last one was.
    std::uint64_t from_ticks_ = 0;
    TimePoint from_{};
    Duration stretch_ = Duration::zero();  // Zero: not begun.
    std::uint64_t ns_per_tick_ = 0;        // In units of 2^-32; 0: not known yet.
};

}  // namespace weft::base
