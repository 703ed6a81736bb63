// How one spins that waits for another who may need this very cpu.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/steady_clock.h"

namespace weft::core {

// Lets others have the cpu, seldom while nobody takes it, and at once while somebody does: so with
// a cpu for each who spins it costs next to nothing, and with more of them than cpus the one that
// is waited for gets his turn in a switch, not in a slice of the scheduler's.
class Courtesy {
  public:
    // After a poll without anything.
    void idle() {
        if (++polls_ < interval_) {
#if defined(__x86_64__)
            _mm_pause();
#endif
            return;
        }
        polls_ = 0;
        const TimePoint before = clock_.now();
        sched_yield();
        const bool was_taken = clock_.now() - before > switch_time;
        interval_ = was_taken ? 1 : std::min(std::max(interval_ * 2, least), most);
    }
    // After one with.
    void busy() { polls_ = 0; }

  private:
    // A yield that nobody takes is a system call; one that is taken, two switches and what is done
    // between them.
    static constexpr Duration switch_time = 1200ns;
    static constexpr std::uint32_t least = 32;  // Polls, longer than a fast answer takes.
    static constexpr std::uint32_t most = 4096;

    base::SteadyClock clock_;
    std::uint32_t polls_ = 0;
    std::uint32_t interval_ = 256;
};

}  // namespace weft::core
