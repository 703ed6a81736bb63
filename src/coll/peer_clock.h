// The start of a collective, on the clock of the rank that receives the request. Pure.
//
// A request may lie in a socket, or its sender may be stalled, for any time. So it does not carry
// its age: it names a time of the receiver's clock, from a reading that the sender has. The reading
// was taken before it arrived, so a time derived from it is never too late: a collective may look
// older than it is, and never younger. docs/adr/0012 lists what depends on that.
#pragma once

#include <algorithm>
#include <cstdint>

#include <weft/time.h>

namespace weft::coll {

// Nanoseconds of one runtime's clock, from a random start: readings of one incarnation of a rank
// mean nothing to the next.
using Ticks = std::uint64_t;

// No rank begins a collective that is older than this, or than its own time limit.
inline constexpr Duration begin_within_max = 600s;
// A rank remembers a collective for longer than that, from its first request on: clocks drift.
inline constexpr Duration remembered_slack = 20s;

inline Duration begin_within(Duration time_limit) { return std::min(time_limit, begin_within_max); }

class OwnClock {
  public:
    explicit OwnClock(std::uint64_t beginning) : beginning_(beginning) {}
    // Never 0.
    Ticks read(TimePoint now) const {
        return (beginning_ + static_cast<Ticks>(now.time_since_epoch().count())) | 1;
    }
    // The time since `then`. Slightly negative: the error of two clocks' readings; more: `then` is
    // of another clock.
    Duration age(Ticks then, TimePoint now) const {
        return Duration(static_cast<std::int64_t>(read(now) - then));
    }

  private:
    std::uint64_t beginning_;
};

// Whether a collective of that age may begin.
inline bool may_begin(Duration age, Duration time_limit) {
    return age >= -1ms && age <= begin_within(time_limit);
}

// What one rank knows of another's clock.
class PeerClock {
  public:
    PeerClock() = default;
    // `reading`: received by `now`, a time of the processor and not of the turn.
    PeerClock(Ticks reading, TimePoint now) : reading_(reading), at_(now) {}

    bool is_known() const { return reading_ != 0; }
    // Keeps the better reading.
    void note(Ticks reading, TimePoint now) {
        if (reading == 0) return;
        const bool is_better =
            !is_known() || static_cast<std::int64_t>(reading - peer_time(now)) >= 0;
        if (is_better) *this = PeerClock(reading, now);
    }
    // The peer's clock had reached this time at `then`. Requires: is_known().
    Ticks peer_time(TimePoint then) const {
        return reading_ + static_cast<Ticks>((then - at_ - loss(then)).count());
    }
    // Subtracted there, since the clocks may drift that far from the reading until `then`.
    Duration loss(TimePoint then) const {
        const Duration since = then - at_;
        return std::max(since, -since) / drift_share;
    }

  private:
    // Two hosts' clocks are slewed by a thousandth together, at most, and have errors of their own.
    static constexpr int drift_share = 512;

    Ticks reading_ = 0;  // 0: none.
    TimePoint at_{};
};

}  // namespace weft::coll
