// How much of a peer's silence is this side's own stall. While this process is stopped or its
// thread is busy elsewhere, an answer may lie unread in the kernel or in the resolver's thread. An
// endpoint polls for answers at intervals while handshakes are in progress; time in which it did
// not poll extends their deadlines.
#pragma once

#include <algorithm>

#include <weft/time.h>

namespace weft::na {

// A sleeping endpoint wakes at this interval while a handshake has a deadline.
inline constexpr Duration handshake_poll_interval = 100ms;
// The part of the time between two polls that counts as silence of the peer, at most.
inline constexpr Duration poll_gap_max = 250ms;

// How long this endpoint was stalled, given the time since its last poll.
constexpr Duration own_stall(Duration unpolled) {
    return std::max(unpolled - poll_gap_max, Duration::zero());
}

// The deadline after a stall; `latest`: the deadline of a handshake that begins now.
constexpr TimePoint postponed(TimePoint deadline, Duration stall, TimePoint latest) {
    if (deadline >= latest) return deadline;  // Begun after the stall, or without a deadline.
    return std::min(deadline + stall, latest);
}

}  // namespace weft::na
