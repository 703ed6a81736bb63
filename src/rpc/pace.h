// Whether a call that has to wait can be answered in time: learnt from the replies while calls
// wait. Pure: the caller brings the time.
#pragma once

#include <cstdint>

#include <weft/time.h>

namespace weft::rpc {

class Pace {
  public:
    // A reply, while calls wait.
    void on_reply(TimePoint now) {
        if (counted_ == 0) since_ = now;
        ++counted_;
        // They come in bunches: a pace shows over many only.
        const Duration time = now - since_;
        if (time < span || counted_ < replies_least) return;
        interval_ = time / counted_;
        counted_ = 0;
    }
    // Nothing waits any more: it has caught up, and may be faster now.
    void on_idle() {
        counted_ = 0;
        interval_ = {};
    }

    // When a call would be answered that has so many before it; `now` while that is not known.
    TimePoint expected(TimePoint now, std::uint32_t before) const {
        return saturating_add(now, interval_ * (before + 1));
    }

  private:
    static constexpr Duration span = 20ms;
    static constexpr std::uint32_t replies_least = 16;

    Duration interval_{};  // Between replies, the last time it was known.
    TimePoint since_{};
    std::uint32_t counted_ = 0;
};

}  // namespace weft::rpc
