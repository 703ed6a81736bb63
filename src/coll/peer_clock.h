// When a collective began, on the clock of the rank that is asked to take part. Pure.
//
// A request may lie in a socket, or its sender stand still, for any time. So it does not say how
// old it was when it left: it names a time of its receiver's clock, of which the sender has a
// reading. A reading is taken before it comes, so what is worked out from it is never later than it
// is there: a collective may look older than it is, and never younger. docs/adr/0012 says what
// rests on that.
#pragma once

#include <algorithm>
#include <cstdint>

#include <weft/time.h>

namespace weft::coll {

// Nanoseconds of the clock of one runtime, from a random beginning: what one life of a rank has
// told means nothing to the next.
using Ticks = std::uint64_t;

// No rank begins a collective that is older than this, or than the time that the collective has.
inline constexpr Duration begin_within_most = 600s;
// A rank remembers one for longer than that, since it was asked first: clocks drift.
inline constexpr Duration remembered_on = 20s;

inline Duration begin_within(Duration lasts) { return std::min(lasts, begin_within_most); }

class OwnClock {
  public:
    explicit OwnClock(std::uint64_t beginning) : beginning_(beginning) {}
    // Never 0.
    Ticks read(TimePoint now) const {
        return (beginning_ + static_cast<Ticks>(now.time_since_epoch().count())) | 1;
    }
    // Since then. Negative: a little of it is the error of two clocks' readings, more means that
    // the time is another clock's.
    Duration age(Ticks then, TimePoint now) const {
        return Duration(static_cast<std::int64_t>(read(now) - then));
    }

  private:
    std::uint64_t beginning_;
};

// A collective that began then may begin here.
inline bool may_begin(Duration age, Duration lasts) {
    return age >= -1ms && age <= begin_within(lasts);
}

// What one rank knows of another's clock.
class PeerClock {
  public:
    PeerClock() = default;
    // `reading`: came by `now`, a time of the processor's and not of the turn.
    PeerClock(Ticks reading, TimePoint now) : reading_(reading), at_(now) {}

    bool is_known() const { return reading_ != 0; }
    // Keeps the better one.
    void note(Ticks reading, TimePoint now) {
        if (reading == 0) return;
        const bool is_better =
            !is_known() || static_cast<std::int64_t>(reading - time_there(now)) >= 0;
        if (is_better) *this = PeerClock(reading, now);
    }
    // At `then` it was no earlier there. Requires: is_known().
    Ticks time_there(TimePoint then) const {
        return reading_ + static_cast<Ticks>((then - at_ - loss(then)).count());
    }
    // What is taken off there, since the clocks may drift that far from the reading until `then`.
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
