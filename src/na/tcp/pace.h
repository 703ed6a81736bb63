// How much of a turn a bulk lane may take, each time it is read or written.
#pragma once

#include <algorithm>
#include <cstddef>

#include <weft/time.h>

namespace weft::na::tcp {

// Much when nothing else goes on, and little while messages come and go beside it: 16 KiB are 3 to
// 8 us of a call's time, at either end.
//
// A message while bulk is under way is beside it. Bulk that moved in one piece between two messages
// may be one that caused the other, as large bodies and their calls do, and those are to be quick;
// so such messages tell only when they are many for the bytes that moved.
class Pace {
  public:
    static constexpr std::size_t slice_bytes_quiet = 512 * 1024;
    static constexpr std::size_t slice_bytes_busy = 16 * 1024;
    static constexpr Duration busy_for = 1ms;

    // Messages came or one left; `beside` bulk that is under way.
    void talked(TimePoint now, bool beside) {
        if (beside) talked_at_ = now;
        owed_bytes_ = std::min(owed_bytes_ + bytes_of_a_message, 2 * owed_bytes_busy);
    }

    void moved(TimePoint now, std::size_t bytes) {
        if (bytes == 0) return;
        owed_bytes_ -= has_moved_lately(now) ? std::min(owed_bytes_, bytes) : owed_bytes_;
        moved_at_ = now;
    }

    // Bytes that a lane may move now.
    std::size_t slice_bytes(TimePoint now) const {
        const bool many_messages = owed_bytes_ >= owed_bytes_busy && has_moved_lately(now);
        return many_messages || now - talked_at_ < busy_for ? slice_bytes_busy : slice_bytes_quiet;
    }

  private:
    // The fewest bytes that a large call moves for each of its messages, and how far a flow must
    // stay behind that.
    static constexpr std::size_t bytes_of_a_message = 32 * 1024;
    static constexpr std::size_t owed_bytes_busy = 512 * 1024;
    static constexpr Duration lately = 10ms;

    bool has_moved_lately(TimePoint now) const { return now - moved_at_ < lately; }

    TimePoint talked_at_;
    TimePoint moved_at_;
    std::size_t owed_bytes_ = 0;
};

}  // namespace weft::na::tcp
