// How much of a turn a lane may take, each time it is read or written.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

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

    // Bytes that lanes may move in a turn, and that a lane may move now.
    static constexpr std::size_t turn_bytes = slice_bytes_quiet;
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

// What each of several lanes may take of a turn that serves them one after the other: all of it for
// one that is alone, and an equal part for each when others had something, or found no room, in the
// turn before.
class Share {
  public:
    static constexpr std::uint32_t lanes_max = 4;

    std::size_t of(std::size_t bytes) const { return bytes / lanes_; }

    void served() { ++served_; }       // One that had something.
    void left_out() { full_ = true; }  // One that found no room.
    void end_turn() {
        lanes_ = std::clamp(full_ ? 2 * std::max(served_, lanes_) : served_, 1u, lanes_max);
        served_ = 0;
        full_ = false;
    }

  private:
    std::uint32_t lanes_ = 1;
    std::uint32_t served_ = 0;  // In this turn.
    bool full_ = false;
};

}  // namespace weft::na::tcp
