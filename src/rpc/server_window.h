// How many calls each client may have at a server at once: fewer under a backlog.
//
// Queued requests would wait for handlers until their calls have timed out. So clients get a
// smaller window: half of it while there is a backlog, and twice as much after a while without one
// (CoDel's sign of a standing queue, Nichols and Jacobson 2012, with credits instead of drops).
#pragma once

#include <algorithm>

#include "base/assert.h"
#include "base/timer_wheel.h"
#include "rpc/session_wire.h"

namespace weft::rpc {

class ServerWindow : private base::Timer {
  public:
    // Receives each change.
    class Owner {
      public:
        virtual void on_window(std::uint32_t window) = 0;

      protected:
        ~Owner() = default;
    };
    ServerWindow(Owner& owner, base::TimerWheel& timers) : owner_(owner), timers_(timers) {
        fire = [](base::Timer& timer, TimePoint now) {
            static_cast<ServerWindow&>(timer).widen(now);
        };
    }

    std::uint32_t size() const { return size_; }
    void on_backlog(TimePoint now, bool may_narrow) {
        backlog_at_ = now;
        if (size_ <= size_min || !may_narrow) return;
        set(std::max(size_min, size_ / 2));
        if (!is_linked()) timers_.arm(*this, now + widen_after);
    }
    void stop() { timers_.cancel(*this); }

  private:
    static constexpr std::uint32_t size_min = 4;
    static constexpr Duration widen_after = 100ms;  // Without a backlog.

    void set(std::uint32_t size) {
        WEFT_ASSERT(size >= size_min && size <= slots_max);
        size_ = size;
        owner_.on_window(size);
    }
    void widen(TimePoint now) {
        WEFT_DCHECK(size_ < slots_max && !is_linked());
        if (now - backlog_at_ >= widen_after) set(std::min(slots_max, size_ * 2));
        if (size_ < slots_max) timers_.arm(*this, now + widen_after);
    }

    Owner& owner_;
    base::TimerWheel& timers_;
    std::uint32_t size_ = slots_max;
    TimePoint backlog_at_{};  // The last one.
};

}  // namespace weft::rpc
