// How many bytes may be under way with a peer whose messages wait behind them in one stream: what
// is ahead of a ping or pong has to arrive in the time that a peer may be silent.
//
// A window starts small and doubles when an item is done soon while more than half of it is used.
// It halves when one takes long: the link is slower than the window assumes. The time of an item
// includes the wait behind all others on the link, so that several windows there (of other
// connections, or of the other side) shrink alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/time.h>

namespace weft::na {

class InFlightWindow {
  public:
    static constexpr std::size_t bytes_least = 64u << 10;  // 0.5 Mbit/s bring it in 1 s.
    static constexpr std::size_t bytes_first = 128u << 10;
    static constexpr std::size_t bytes_most = 16u << 20;
    // Beyond the least time that an item took: that is the way itself.
    static constexpr Duration soon = 100ms;
    static constexpr Duration late = 400ms;
    static constexpr Duration late_anyway = 1s;

    // At the end of the connection: the next one may take another way.
    void reset() { *this = {}; }
    bool has_room() const { return under_way_ < bytes_max_; }
    // Of an item: half of the window, so that another goes on while one is done, and that what is
    // asked for alone, again and again, is one item in the end.
    std::size_t item_bytes() const { return bytes_max_ / 2; }
    std::size_t bytes_max() const { return bytes_max_; }

    void on_posted(std::size_t bytes) { under_way_ += bytes; }
    // Its time says nothing.
    void on_dropped(std::size_t bytes) { under_way_ -= bytes; }
    void on_done(std::size_t bytes, TimePoint posted_at, TimePoint now) {
        const bool is_used = under_way_ > bytes_max_ / 2;
        under_way_ -= bytes;
        // What was posted before the last change does not show what came of that.
        if (posted_at < changed_at_) return;
        const Duration took = now - posted_at;
        least_ = std::min(least_, took);
        if (took > std::min(least_ + late, late_anyway)) {
            change(std::max(bytes_max_ / 2, bytes_least), now);
        } else if (is_used && took <= least_ + soon) {
            change(std::min(bytes_max_ * 2, bytes_most), now);
        }
    }

  private:
    void change(std::size_t bytes_max, TimePoint now) {
        bytes_max_ = bytes_max;
        changed_at_ = now;
    }

    std::size_t under_way_ = 0;
    std::size_t bytes_max_ = bytes_first;
    TimePoint changed_at_{};
    Duration least_ = late_anyway;
};

}  // namespace weft::na
