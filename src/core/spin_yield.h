// How often a spinning thread yields its cpu, which the awaited thread may need. How long a thread
// spins before it sleeps: RuntimeOptions::spin, read in core/driver.cc.
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

// Yields the cpu: rarely while no other thread takes it, after each poll while one does. With a cpu
// for each spinning thread this costs almost nothing. With fewer cpus the awaited thread runs after
// a switch, not after a time slice of the scheduler.
class SpinYield {
  public:
    // After a poll without events.
    void on_idle_poll() {
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
        interval_ = was_taken
                        ? 1
                        : std::min(std::max(interval_ * 2, yield_interval_min), yield_interval_max);
    }
    // After a poll with events.
    void on_event() { polls_ = 0; }

  private:
    // Involuntary switches to another thread, including a yield that another thread takes. A count,
    // because the duration of a yield means little on a slow or emulated machine.
    static long switches_of_thread() {
        rusage usage{};
        getrusage(RUSAGE_THREAD, &usage);
        return usage.ru_nivcsw;
    }

    static constexpr std::uint32_t yield_interval_min =
        32;  // Polls, longer than a fast reply takes.
    // With more spinning threads than cpus the scheduler may pick a yielding thread again at once,
    // and all others wait during its next polls.
    static constexpr std::uint32_t yield_interval_max = 128;

    long switches_ = switches_of_thread();
    std::uint32_t polls_ = 0;
    std::uint32_t interval_ = yield_interval_max;
};

}  // namespace weft::core
