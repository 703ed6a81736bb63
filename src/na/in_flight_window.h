// How many bytes may be in flight with a peer if its messages queue behind them in one stream: the
// bytes ahead of a ping or pong must arrive within the time for which a peer may be silent.
//
// A window starts small and doubles when an item completes soon while more than half of the window
// is used. It halves when an item takes long: the link is slower than the window assumes. The time
// of an item includes its wait behind all others on the link, so several windows on one link (of
// other connections, or of the other side) shrink alike.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <weft/time.h>

#include "base/assert.h"

namespace weft::na {

class InFlightWindow {
  public:
    static constexpr std::size_t bytes_min = 64u << 10;  // 1 s at 0.5 Mbit/s.
    static constexpr std::size_t bytes_initial = 128u << 10;
    static constexpr std::size_t bytes_limit = 16u << 20;
    // Beyond the shortest time of an item so far, which is the latency of the path.
    static constexpr Duration fast_within = 100ms;
    static constexpr Duration slow_beyond = 400ms;
    static constexpr Duration slow_always = 1s;

    // At the end of the connection: the next connection may take another path.
    void reset() { *this = {}; }
    bool has_room() const { return under_way_ < bytes_max_; }
    // The size of an item: half of the window, so that one item is in flight while another
    // completes. For a transfer that is repeated alone, the window grows until the transfer is one
    // item.
    std::size_t item_bytes() const { return bytes_max_ / 2; }
    std::size_t bytes_max() const { return bytes_max_; }

    void on_posted(std::size_t bytes) { under_way_ += bytes; }
    // For an item that was not completed: its time does not count.
    void on_dropped(std::size_t bytes) {
        WEFT_DCHECK(under_way_ >= bytes);
        under_way_ -= bytes;
    }
    void on_done(std::size_t bytes, TimePoint posted_at, TimePoint now) {
        WEFT_DCHECK(under_way_ >= bytes);
        const bool is_used = under_way_ > bytes_max_ / 2;
        under_way_ -= bytes;
        // An item posted before the last change does not show the effect of that change.
        if (posted_at < changed_at_) return;
        const Duration took = now - posted_at;
        shortest_ = std::min(shortest_, took);
        if (took > std::min(shortest_ + slow_beyond, slow_always)) {
            change(std::max(bytes_max_ / 2, bytes_min), now);
        } else if (is_used && took <= shortest_ + fast_within) {
            change(std::min(bytes_max_ * 2, bytes_limit), now);
        }
    }

  private:
    void change(std::size_t bytes_max, TimePoint now) {
        WEFT_DCHECK(bytes_max >= bytes_min && bytes_max <= bytes_limit);
        bytes_max_ = bytes_max;
        changed_at_ = now;
    }

    std::size_t under_way_ = 0;
    std::size_t bytes_max_ = bytes_initial;
    TimePoint changed_at_{};
    Duration shortest_ = slow_always;
};

}  // namespace weft::na
