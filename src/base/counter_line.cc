#include "base/counter_line.h"

#include <algorithm>

namespace weft::base {

static constexpr Duration stretch_max = 1s;
// Ten gigahertz to a hundred megahertz, in units of 2^-32 ns per tick.
static constexpr std::uint64_t tick_min = (std::uint64_t{1} << 32) / 10;
static constexpr std::uint64_t tick_max = (std::uint64_t{1} << 32) * 10;

TimePoint CounterLine::floor(std::uint64_t ticks) const {
    if (ticks < ticks_) return start_;
    const std::uint64_t ns = (window_ticks_ * slope_) >> 32;
    return start_ + Duration(static_cast<std::int64_t>(ns));
}

TimePoint CounterLine::pass(std::uint64_t ticks, TimePoint now) {
    const TimePoint least = floor(ticks);
    measure(ticks, now);
    ticks_ = ticks;
    start_ = std::max(now, least);
    if (ns_per_tick_ == 0) {
        window_ticks_ = slope_ = 0;
        return start_;
    }
    constexpr auto whole = static_cast<std::uint64_t>(window.count());
    window_ticks_ = (whole << 32) / ns_per_tick_;
    // At least half the speed: returned times must not stand still.
    const auto ahead = static_cast<std::uint64_t>((start_ - now).count());
    slope_ = ns_per_tick_ * (whole - std::min(ahead, whole / 2)) / whole;
    return start_;
}

// A measurement that differs from the one before by more than a thousandth, or is implausible,
// begins anew: the machine was migrated or stopped.
void CounterLine::measure(std::uint64_t ticks, TimePoint now) {
    if (stretch_ == Duration::zero() || ticks <= measured_from_ticks_ || now < measured_from_) {
        ns_per_tick_ = 0;
        return restart_measurement(ticks, now);
    }
    const Duration passed = now - measured_from_;
    if (passed < stretch_) return;
    const double tick = static_cast<double>(passed.count()) /
                        static_cast<double>(ticks - measured_from_ticks_) * 4294967296.0;
    const bool sane = tick > double{tick_min} && tick < double{tick_max};
    const std::uint64_t measured = sane ? static_cast<std::uint64_t>(tick) : 0;
    const std::uint64_t change =
        std::max(measured, ns_per_tick_) - std::min(measured, ns_per_tick_);
    if (!sane || (ns_per_tick_ != 0 && change > ns_per_tick_ / 1024)) {
        ns_per_tick_ = 0;
        return restart_measurement(ticks, now);
    }
    ns_per_tick_ = measured;
    if (passed < stretch_max) {
        stretch_ = std::min(passed * 2, stretch_max);
        return;
    }
    restart_measurement(ticks, now);
    stretch_ = stretch_max;
}

void CounterLine::restart_measurement(std::uint64_t ticks, TimePoint now) {
    measured_from_ticks_ = ticks;
    measured_from_ = now;
    stretch_ = window;
}

}  // namespace weft::base
