// The cheapest clock, for one reading per operation: the cpu's time stamp counter (about
// 10 ns here; clock_gettime takes 22), in ticks of unknown length until a run calibrates them
// against the steady clock. Every cpu since 2008 counts at a constant rate.
#pragma once

#include <chrono>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include <weft/time.h>

namespace weft::tool {

using Ticks = std::uint64_t;

inline Ticks read_ticks() {
#if defined(__x86_64__)
    return __rdtsc();
#else
    return static_cast<Ticks>(std::chrono::steady_clock::now().time_since_epoch().count());
#endif
}

// Length of a tick, from both clocks read at two instants.
class TickScale {
  public:
    TickScale() : ticks_(read_ticks()), time_(std::chrono::steady_clock::now()) {}

    // Measured since construction; the longer, the more exact: 20 ms give 0.01 %.
    double ns_per_tick() const {
        const Ticks ticks = read_ticks() - ticks_;
        const Duration time = std::chrono::steady_clock::now() - time_;
        return ticks == 0 ? 1.0 : static_cast<double>(time.count()) / static_cast<double>(ticks);
    }
    Duration elapsed() const { return std::chrono::steady_clock::now() - time_; }

  private:
    Ticks ticks_;
    TimePoint time_;
};

}  // namespace weft::tool
