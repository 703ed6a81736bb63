// The windows of a connection: how many messages each side may have in flight. Pure.
#pragma once

#include <cstdint>
#include <utility>

#include "base/assert.h"

namespace weft::na::verbs {

class Credits {
  public:
    // This side lets the peer have `messages` in flight.
    void grant(std::uint32_t messages) { granted_ = messages; }
    std::uint32_t granted() const { return granted_; }
    // The peer lets this side have `messages` in flight.
    void open_window(std::uint32_t messages) { own_ = window_ = messages; }

    bool may_send() const { return own_ != 0; }
    void on_sent() {
        WEFT_DCHECK(may_send());
        --own_;
    }
    // False: the peer returned more than were used.
    bool on_returned(std::uint32_t credits) {
        if (credits > window_ - own_) return false;
        own_ += credits;
        return true;
    }

    // False: the peer sent more messages than it was granted.
    bool on_received() { return ++unreturned_ <= granted_; }
    // The peer has used half of its window, so these credits do not wait for another message.
    bool must_return() const { return unreturned_ * 2 >= granted_; }
    std::uint32_t take_unreturned() { return std::exchange(unreturned_, 0); }

  private:
    std::uint32_t granted_ = 0;
    std::uint32_t unreturned_ = 0;  // Received, and not yet returned.
    std::uint32_t own_ = 0;         // Messages that this side may send now,
    std::uint32_t window_ = 0;      // and when none is in flight.
};

}  // namespace weft::na::verbs
