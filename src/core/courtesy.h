// How one spins that waits for another who may need this very cpu.
#pragma once

#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

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
        sched_yield();
        const long switches = switches_of_thread();
        const bool was_taken = std::exchange(switches_, switches) != switches;
        interval_ = was_taken ? 1 : std::min(std::max(interval_ * 2, least), most);
    }
    // After one with.
    void busy() { polls_ = 0; }

  private:
    // From this thread to another one while it wanted to go on: a yield that somebody takes is one.
    // A count, for how long a yield takes says little on a machine that is slow, or emulated.
    static long switches_of_thread() {
        rusage usage{};
        getrusage(RUSAGE_THREAD, &usage);
        return usage.ru_nivcsw;
    }

    static constexpr std::uint32_t least = 32;  // Polls, longer than a fast answer takes.
    // Where more spin than there are cpus the scheduler may take one who yields again at once, and
    // all others wait for as long as he polls then.
    static constexpr std::uint32_t most = 128;

    long switches_ = switches_of_thread();
    std::uint32_t polls_ = 0;
    std::uint32_t interval_ = most;
};

}  // namespace weft::core
