// The real clock: CLOCK_MONOTONIC, and between two askings of the kernel, at most a millisecond
// apart, the processor's time stamp counter, which costs half as much to read.
//
// Only where the kernel itself runs on that counter (clocksource tsc); everywhere else every
// reading is the kernel's. A thread has its own anchor, so nothing is shared. Between two threads
// readings differ by less than a microsecond, as long as the machine is not moved in
// mid-millisecond.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/clock.h"

namespace weft::base {

class SteadyClock final : public Clock {
  public:
    // Thread: any.
    TimePoint now() const override {
#if defined(__x86_64__)
        const Anchor& anchor = anchor_;
        const std::uint64_t passed = __rdtsc() - anchor.ticks;
        if (passed < anchor.window) [[likely]] {
            const std::uint64_t ns = (passed * anchor.ns_per_tick) >> 32;
            return anchor.at + Duration(static_cast<std::int64_t>(ns));
        }
#endif
        return ask_kernel();
    }

  private:
    struct Anchor {
        std::uint64_t ticks = 0;
        std::uint64_t window = 0;       // In ticks; 0: how long a tick takes is not known yet.
        std::uint64_t ns_per_tick = 0;  // In units of 2^-32.
        TimePoint at{};
    };

    static TimePoint ask_kernel();
    static void move_anchor(Anchor& anchor, std::uint64_t ticks, TimePoint at);

    static constinit thread_local Anchor anchor_;
};

}  // namespace weft::base
