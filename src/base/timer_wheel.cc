#include "base/timer_wheel.h"

#include "base/assert.h"

namespace weft::base {

TimerWheel::~TimerWheel() {
    for (auto& level : wheel_) {
        for (Bucket& bucket : level) {
            while (bucket.pop_front()) {
            }
        }
    }
}

void TimerWheel::arm_slow(Timer& timer) {
    if (timer.deadline == never) return;
    timer.deadline = std::max(timer.deadline, TimePoint());  // Ticks count from the epoch.
    ++armed_;
    insert(timer);
}

void TimerWheel::insert(Timer& timer) {
    WEFT_DCHECK(timer.deadline != never && !timer.is_linked());
    const std::uint64_t due = std::max(due_tick(timer.deadline), now_tick_ + 1);
    const std::uint64_t distance = std::min(due - now_tick_, reach);
    bucket(now_tick_ + distance, distance).push_back(timer);
}

void TimerWheel::advance_slow(TimePoint now) {
    const std::uint64_t target = tick_of(now);
    if (target > now_tick_ + walk_max) skip_to(target - 1);
    while (now_tick_ < target && armed_ != 0) {
        ++now_tick_;
        for (int level = 1; level < levels; ++level) {
            if (now_tick_ % (std::uint64_t{1} << (bits * level)) != 0) break;
            cascade(level);
        }
        fire_bucket(wheel_[0][now_tick_ % buckets], now);
    }
    now_tick_ = std::max(now_tick_, target);
}

// Inserts every timer again; the timers that are due by then fire at the next tick.
void TimerWheel::skip_to(std::uint64_t tick) {
    Bucket all;
    for (auto& level : wheel_) {
        for (Bucket& bucket : level) all.splice_back(bucket);
    }
    WEFT_ASSERT(tick >= now_tick_);
    now_tick_ = tick;
    while (Timer* timer = all.pop_front()) insert(*timer);
}

void TimerWheel::cascade(int level) {
    Bucket due;
    due.splice_back(wheel_[level][(now_tick_ >> (bits * level)) % buckets]);
    while (Timer* timer = due.pop_front()) {
        // Due at this tick: into the bucket that fires next.
        if (due_tick(timer->deadline) <= now_tick_) {
            wheel_[0][now_tick_ % buckets].push_back(*timer);
        } else {
            insert(*timer);
        }
    }
}

void TimerWheel::fire_bucket(Bucket& bucket, TimePoint now) {
    Bucket due;
    due.splice_back(bucket);
    while (Timer* timer = due.pop_front()) {
        WEFT_ASSERT(armed_ != 0 && timer->fire);
        --armed_;
        timer->fire(*timer, now);
    }
}

TimePoint TimerWheel::next_deadline() const {
    if (armed_ == 0) return never;
    std::uint64_t next = ~std::uint64_t{};
    for (int level = 0; level < levels; ++level) {
        // A coarser bucket cascades, or fires, at the first tick of its block.
        const std::uint64_t block = now_tick_ >> (bits * level);
        for (std::uint64_t ahead = 1; ahead <= buckets; ++ahead) {
            const std::uint64_t tick = (block + ahead) << (bits * level);
            if (tick >= next) break;
            if (!wheel_[level][(block + ahead) % buckets].empty()) next = tick;
        }
    }
    return TimePoint(Duration(static_cast<std::int64_t>(next << tick_bits)));
}

}  // namespace weft::base
