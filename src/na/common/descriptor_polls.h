// How often an endpoint that polls memory or sockets polls its descriptors as well, which costs a
// system call: at once on request, else after some polls or some time.
#pragma once

#include <cstdint>
#include <utility>

#include "base/assert.h"
#include "na/own_stall.h"

namespace weft::na {

class DescriptorPolls {
  public:
    struct Intervals {
        Duration busy;                 // While messages flow.
        std::uint32_t polls_idle = 0;  // Else after so many polls,
        Duration idle;                 // or this time.
    };

    DescriptorPolls(const Intervals& intervals, TimePoint now)
        : intervals_(intervals), polled_at_(now) {
        WEFT_ASSERT(intervals.polls_idle != 0);
    }

    // The next poll includes the descriptors.
    void request() { requested_ = true; }
    bool is_due(bool busy, TimePoint now) {
        if (requested_) return true;
        if (busy) return now - polled_at_ >= intervals_.busy;
        return ++polls_since_ >= intervals_.polls_idle || now - polled_at_ >= intervals_.idle;
    }
    // The descriptors are polled now. Returns how long this thread was stalled.
    Duration begin(TimePoint now) {
        requested_ = false;
        polls_since_ = 0;
        return own_stall(now - std::exchange(polled_at_, now));
    }
    // When a thread that sleeps polls again while a handshake has a deadline.
    TimePoint next_during_handshake() const { return polled_at_ + handshake_poll_interval; }

  private:
    const Intervals intervals_;
    bool requested_ = true;
    std::uint32_t polls_since_ = 0;
    TimePoint polled_at_;
};

}  // namespace weft::na
