// Deadlines with O(1) arm and cancel: a hierarchical timing wheel (Varghese and Lauck, SOSP 1987,
// scheme 7): 4 levels of 64 buckets over a tick of about one millisecond (2^20 ns), which reaches
// 4.9 hours; later timers wait in the last bucket and are filed again.
//
// Pure: the caller brings the time. A timer never fires early, and at most one tick late.
// Lifetime: a Timer must be cancelled or fired before it dies; the wheel owns none.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include <weft/time.h>

#include "base/intrusive_list.h"

namespace weft::base {

struct Timer : ListNode {
    TimePoint deadline{};
    // What to do is the owner's business: derive from Timer, or compare addresses.
    void (*fire)(Timer&, TimePoint now) = nullptr;
};

class TimerWheel {
  public:
    explicit TimerWheel(TimePoint start) : now_tick_(tick_of(start)) {}
    ~TimerWheel();

    // Requires: timer.fire set and the timer not armed. `never` is allowed and arms nothing.
    void arm(Timer& timer, TimePoint deadline) {
        WEFT_DCHECK(timer.fire != nullptr);
        timer.deadline = deadline;
        if (deadline == never) return;
        ++armed_;
        file(timer);
    }

    void cancel(Timer& timer) {
        if (!timer.is_linked()) return;
        timer.unlink();
        --armed_;
    }

    // Fires every timer whose deadline is at or before `now`; a fired timer may arm and cancel
    // others, itself included.
    void advance(TimePoint now) {
        if (tick_of(now) != now_tick_ && armed_ != 0) {
            advance_slow(now);
        } else {
            now_tick_ = tick_of(now);
        }
    }

    // No timer fires before this instant; `never` when none is armed. Cost: one pass over 64
    // buckets at most.
    TimePoint next_deadline() const;

    std::uint32_t armed() const { return armed_; }

  private:
    static constexpr int levels = 4;
    static constexpr int bits = 6;
    static constexpr int tick_bits = 20;
    static constexpr std::uint64_t buckets = 1u << bits;
    using Bucket = IntrusiveList<Timer>;

    static std::uint64_t tick_of(TimePoint at) {
        return static_cast<std::uint64_t>(at.time_since_epoch().count()) >> tick_bits;
    }
    // The first tick at which a timer with this deadline may fire: rounded up, never early.
    static std::uint64_t due_tick(TimePoint deadline) { return tick_of(deadline) + 1; }

    void file(Timer& timer) {
        const std::uint64_t due = std::max(due_tick(timer.deadline), now_tick_ + 1);
        // Beyond the wheel: the farthest bucket of the last level; cascade() files it again.
        constexpr std::uint64_t reach = (buckets - 1) << (bits * (levels - 1));
        const std::uint64_t distance = std::min(due - now_tick_, reach);
        const int level = (63 - std::countl_zero(distance)) / bits;
        const std::uint64_t at = (now_tick_ + distance) >> (bits * level);
        wheel_[level][at % buckets].push_back(timer);
    }
    void advance_slow(TimePoint now);
    void cascade(int level);
    void fire_bucket(Bucket& bucket, TimePoint now);

    std::array<std::array<Bucket, buckets>, levels> wheel_;
    std::uint64_t now_tick_;
    std::uint32_t armed_ = 0;
};

}  // namespace weft::base
