// Deadlines with O(1) arm and cancel: a hierarchical timing wheel (Varghese and Lauck, SOSP 1987,
// scheme 7): 4 levels of 64 buckets over a tick of about one millisecond (2^20 ns), which reaches
// 4.9 hours; later timers wait in the last bucket and are inserted again.
//
// Pure: the caller passes the time. A timer never fires early, and at most one tick late. Lifetime:
// a Timer must be cancelled or fired before it is destroyed; the wheel owns none.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>

#include <weft/time.h>

#include "base/assert.h"
#include "base/intrusive_list.h"

namespace weft::base {

struct Timer : ListNode {
    TimePoint deadline{};
    // To find its owner, derive from Timer, or compare addresses.
    void (*fire)(Timer&, TimePoint now) = nullptr;
};

class TimerWheel {
  public:
    explicit TimerWheel(TimePoint start) : now_tick_(tick_of(start)) {}
    ~TimerWheel();

    // Requires: timer.fire set and the timer not armed. `never` is allowed and arms nothing.
    void arm(Timer& timer, TimePoint deadline) {
        WEFT_DCHECK(timer.fire != nullptr && !timer.is_linked());
        timer.deadline = deadline;
        // One comparison for the usual case: the distance of a past tick wraps to a huge value.
        const std::uint64_t due = due_tick(deadline);
        const std::uint64_t distance = due - now_tick_;
        if (distance - 1 >= reach) [[unlikely]] {
            return arm_slow(timer);
        }
        ++armed_;
        bucket(due, distance).push_back(timer);
    }

    void cancel(Timer& timer) {
        if (!timer.is_linked()) return;
        WEFT_DCHECK(armed_ != 0);
        timer.unlink();
        --armed_;
    }

    // Fires every timer with a deadline in a completed tick; a timer armed past its deadline waits
    // for the end of the tick. A fired timer may arm and cancel others, itself included. Cost: a
    // step for each tick since the last call, or, after seconds without one, for each timer armed.
    void advance(TimePoint now) {
        if (tick_of(now) != now_tick_) [[unlikely]] {
            advance_slow(now);
        }
    }

    // No timer fires before this instant; `never` when none is armed. For a single timer at most
    // three calls return an instant before the one at which it fires. Cost: one pass over the 64
    // buckets of each level at most.
    TimePoint next_deadline() const;

    std::uint32_t armed() const { return armed_; }

  private:
    static constexpr int levels = 4;
    static constexpr int bits = 6;
    static constexpr int tick_bits = 20;
    static constexpr std::uint64_t buckets = 1u << bits;
    // In ticks; farther timers wait in the last bucket and are inserted again.
    static constexpr std::uint64_t reach = (buckets - 1) << (bits * (levels - 1));
    // advance() does not walk more ticks than this one by one.
    static constexpr std::uint64_t walk_max = buckets * buckets;
    using Bucket = IntrusiveList<Timer>;

    static std::uint64_t tick_of(TimePoint at) {
        return static_cast<std::uint64_t>(at.time_since_epoch().count()) >> tick_bits;
    }
    // The first tick at which a timer with this deadline may fire: rounded up, never early.
    static std::uint64_t due_tick(TimePoint deadline) { return tick_of(deadline) + 1; }

    // The bucket of a timer that is due in `distance` ticks, at tick `at`.
    Bucket& bucket(std::uint64_t at, std::uint64_t distance) {
        WEFT_DCHECK(distance != 0 && distance <= reach);
        const auto level = static_cast<unsigned>(63 - std::countl_zero(distance)) * 43 >> 8;  // / 6
        return wheel_[level][(at >> (bits * level)) % buckets];
    }
    void arm_slow(Timer& timer);
    void insert(Timer& timer);
    void advance_slow(TimePoint now);
    void cascade(int level);
    void skip_to(std::uint64_t tick);
    void fire_bucket(Bucket& bucket, TimePoint now);

    std::array<std::array<Bucket, buckets>, levels> wheel_;
    std::uint64_t now_tick_;
    std::uint32_t armed_ = 0;
};

}  // namespace weft::base
