#include "base/steady_clock.h"

#include <time.h>

#include <algorithm>
#include <fstream>
#include <string>

#include "base/fork.h"

namespace weft::base {

constinit thread_local CounterLine SteadyClock::line_;

static TimePoint kernel_time() {
    timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return TimePoint(Duration(at.tv_sec * 1'000'000'000 + at.tv_nsec));
}

#if defined(__x86_64__)

// If the counter advances by more than this around a reading of the kernel, the thread was
// interrupted in between.
static constexpr std::uint64_t pair_ticks_max = 2000;

static bool kernel_trusts_counter() {
    std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::string name;
    return file >> name && name == "tsc";
}

#endif

TimePoint SteadyClock::read_kernel() {
#if defined(__x86_64__)
    if (probe_once<kernel_trusts_counter>()) {
        CounterLine& line = line_;
        for (int tries = 0; tries < 3; ++tries) {
            const std::uint64_t before = __rdtsc();
            const TimePoint now = kernel_time();
            const std::uint64_t between = __rdtsc() - before;
            if (between <= pair_ticks_max) return line.pass(before + between / 2, now);
        }
        return std::max(kernel_time(), line.floor(__rdtsc()));
    }
#endif
    return kernel_time();
}

}  // namespace weft::base
