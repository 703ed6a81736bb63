// How much of a turn a bulk lane may use, each time it is read or written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/time.h>

#include "base/assert.h"

namespace weft::na::tcp {

// Much when there is no other traffic, and little while messages flow at the same time: 16 KiB cost
// a call 3 to 8 us, at either end.
//
// A message while bulk is in progress counts at once. Bulk that moved in one piece between two
// messages may belong to the same call, as large bodies do, and has to be fast; such messages count
// only when they are many for the bytes that moved.
class BulkThrottle {
  public:
    static constexpr std::size_t slice_bytes_quiet = 512 * 1024;
    static constexpr std::size_t slice_bytes_busy = 16 * 1024;
    static constexpr Duration busy_for = 1ms;

    // Messages arrived or one was sent; `beside`: while bulk is in progress.
    void on_messages(TimePoint now, bool beside) {
        if (beside) last_message_at_ = now;
        unmatched_bytes_ = std::min(unmatched_bytes_ + bytes_per_message, 2 * unmatched_bytes_busy);
    }

    void on_bulk_bytes(TimePoint now, std::size_t bytes) {
        if (bytes == 0) return;
        unmatched_bytes_ -=
            has_moved_recently(now) ? std::min(unmatched_bytes_, bytes) : unmatched_bytes_;
        moved_at_ = now;
    }

    // Bytes that all lanes may move in a turn, and that one lane may move now.
    static constexpr std::size_t turn_bytes = slice_bytes_quiet;
    std::size_t slice_bytes(TimePoint now) const {
        const bool many_messages =
            unmatched_bytes_ >= unmatched_bytes_busy && has_moved_recently(now);
        return many_messages || now - last_message_at_ < busy_for ? slice_bytes_busy
                                                                  : slice_bytes_quiet;
    }

  private:
    // The fewest bytes that a large call moves for each of its messages, and the deficit from which
    // on messages are many.
    static constexpr std::size_t bytes_per_message = 32 * 1024;
    static constexpr std::size_t unmatched_bytes_busy = 512 * 1024;
    static constexpr Duration recently = 10ms;

    bool has_moved_recently(TimePoint now) const { return now - moved_at_ < recently; }

    TimePoint last_message_at_;
    TimePoint moved_at_;
    std::size_t unmatched_bytes_ = 0;
};

// The share of each of several lanes in a turn that serves them one after the other: all of it for
// a single lane, equal parts if several had work, or found no room, in the turn before.
class FairShare {
  public:
    static constexpr std::uint32_t sharers_max = 4;

    std::size_t of(std::size_t bytes) const {
        WEFT_DCHECK(sharers_ != 0 && sharers_ <= sharers_max);
        return bytes / sharers_;
    }

    void on_served() { ++served_; }       // A lane that had work.
    void on_left_out() { full_ = true; }  // A lane that found no room.
    void end_turn() {
        sharers_ = std::clamp(full_ ? 2 * std::max(served_, sharers_) : served_, 1u, sharers_max);
        served_ = 0;
        full_ = false;
    }

  private:
    std::uint32_t sharers_ = 1;
    std::uint32_t served_ = 0;  // In this turn.
    bool full_ = false;
};

}  // namespace weft::na::tcp
