#include "base/steady_clock.h"

#include <time.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace weft::base {

constinit thread_local SteadyClock::Anchor SteadyClock::anchor_;

namespace {

TimePoint kernel_time() {
    timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return TimePoint(Duration(at.tv_sec * 1'000'000'000 + at.tv_nsec));
}

#if defined(__x86_64__)

constexpr Duration window = 1ms;
// What a tick takes is measured over at least one window and at most this long.
constexpr Duration measured_max = 1s;
// Counter, kernel, counter: closer together than this, or the thread was interrupted.
constexpr std::uint64_t pair_ticks_max = 2000;

bool kernel_trusts_counter() {
    std::ifstream file("/sys/devices/system/clocksource/clocksource0/current_clocksource");
    std::string name;
    return file >> name && name == "tsc";
}

struct Pair {
    std::uint64_t ticks;
    TimePoint at;
};

Pair read_both() {
    Pair best{};
    std::uint64_t closest = ~std::uint64_t{0};
    for (int tries = 0; tries < 3 && closest > pair_ticks_max; ++tries) {
        const std::uint64_t before = __rdtsc();
        const TimePoint at = kernel_time();
        const std::uint64_t between = __rdtsc() - before;
        if (between >= closest) continue;
        closest = between;
        best = {before + between / 2, at};
    }
    return best;
}

#endif

}  // namespace

TimePoint SteadyClock::ask_kernel() {
#if defined(__x86_64__)
    static const bool trusted = kernel_trusts_counter();
    if (trusted) {
        Anchor& anchor = anchor_;
        // What was told last is before this.
        const auto told = (anchor.window * anchor.ns_per_tick) >> 32;
        const TimePoint floor = anchor.at + Duration(static_cast<std::int64_t>(told));
        const Pair now = read_both();
        const bool measuring = anchor.window == 0 && anchor.ticks != 0;
        if (measuring && now.at - anchor.at < window) return now.at;
        move_anchor(anchor, now.ticks, now.at);
        anchor.at = std::max(now.at, floor);
        return anchor.at;
    }
#endif
    return kernel_time();
}

// Takes what lies between the old anchor and the new one as the measure of a tick. What it was
// before must agree: a machine that was moved or stopped in between starts anew.
void SteadyClock::move_anchor(Anchor& anchor, std::uint64_t ticks, TimePoint at) {
#if defined(__x86_64__)
    const auto passed = static_cast<double>((at - anchor.at).count());
    const auto counted = static_cast<double>(ticks - anchor.ticks);
    const bool usable = anchor.ticks != 0 && ticks > anchor.ticks && at - anchor.at >= window &&
                        at - anchor.at <= measured_max;
    if (usable) {
        const double ns_per_tick = passed / counted;
        const auto measured = static_cast<std::uint64_t>(ns_per_tick * 4294967296.0);
        const std::uint64_t before = anchor.ns_per_tick;
        const std::uint64_t change = measured > before ? measured - before : before - measured;
        const bool agrees = before == 0 || change <= before / 1024;
        const bool sane = ns_per_tick > 0.05 && ns_per_tick < 10;
        anchor.ns_per_tick = agrees && sane ? measured : 0;
    }
    // After a long silence the old measure still holds: the counter's rate is constant.
    anchor.window =
        anchor.ns_per_tick == 0
            ? 0
            : (static_cast<std::uint64_t>(Duration(window).count()) << 32) / anchor.ns_per_tick;
#endif
    anchor.ticks = ticks;
    anchor.at = at;
}

}  // namespace weft::base
