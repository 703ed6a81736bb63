// The real clock: CLOCK_MONOTONIC, and for at most a millisecond after each reading of it the
// processor's time stamp counter, which costs half as much to read (adr/0003).
//
// The counter is read only where the kernel itself uses it (clocksource tsc); elsewhere every
// reading is the kernel's. Each thread has its own line, so no state is shared.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "base/clock.h"
#include "base/counter_line.h"

namespace weft::base {

class SteadyClock final : public Clock {
  public:
    // Never goes back on one thread; within 3 microseconds of the kernel's. Thread: any.
    TimePoint now() const override {
#if defined(__x86_64__)
        const CounterLine& line = line_;
        const std::uint64_t ticks = __rdtsc();
        if (line.covers(ticks)) [[likely]] {
            return line.at(ticks);
        }
#endif
        return read_kernel();
    }

  private:
    static TimePoint read_kernel();

    static constinit thread_local CounterLine line_;
};

}  // namespace weft::base
