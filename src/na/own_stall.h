// What of a peer's silence is our own: an answer may lie in the kernel, or in the resolver's
// thread, while this process is stopped or its thread is busy elsewhere. An endpoint looks for
// answers now and then while handshakes are under way, and time in which it did not look moves
// their deadlines.
#pragma once

#include <algorithm>

#include <weft/time.h>

namespace weft::na {

// An endpoint that sleeps wakes so often while a handshake has a deadline.
inline constexpr Duration handshake_look_every = 100ms;
// The time between two looks counts for no more, also where a runtime is turned that seldom.
inline constexpr Duration look_counts_max = 250ms;

// How long this endpoint stood still, when its last look was so long ago.
constexpr Duration own_stall(Duration unseen) {
    return std::max(unseen - look_counts_max, Duration::zero());
}

// The deadline after a stall; `latest`: of a handshake that begins now.
constexpr TimePoint postponed(TimePoint deadline, Duration stall, TimePoint latest) {
    if (deadline >= latest) return deadline;  // Begun after the stall, or never over.
    return std::min(deadline + stall, latest);
}

}  // namespace weft::na
