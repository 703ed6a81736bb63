// How a listener takes connections when descriptors or memory run out.
//
// A connection that stays in the backlog keeps the epoll set readable for ever, and its thread
// awake. So one descriptor is kept to accept and drop such a connection; where even that is gone
// (another thread was quicker), the listener is not watched for a while.
#pragma once

#include <cstdint>
#include <string>

#include <weft/time.h>

#include "base/log.h"
#include "base/unique_fd.h"

namespace weft::na {

class Admission {
  public:
    static constexpr Duration rest = 100ms;  // Of a listener that can take nobody.
    static constexpr Duration tell_every = 1s;

    // Watches `listener` by `epoll` under `id`; both must live as long as this. False: errno.
    bool open(int epoll, int listener, std::uint64_t id);

    // The next connection, non-blocking; none: there is none now. `address`: for the log.
    base::UniqueFd accept(TimePoint now, base::Log& log, const std::string& address);
    // Accepts none before `until`, or resume(): connections wait in the listener's queue.
    void rest_until(TimePoint until);
    void resume() {
        if (watch_at_ != never) watch_at_ = TimePoint::min();
    }
    // To be called when next_deadline() is over; costs a comparison before.
    void serve(TimePoint now);
    TimePoint next_deadline() const { return watch_at_; }

  private:
    base::UniqueFd accept_raw() const;
    bool drop_one();
    void note_dropped(TimePoint now, base::Log& log, const std::string& address);
    bool watch(bool wanted) const;

    int epoll_ = -1;
    int listener_ = -1;
    std::uint64_t id_ = 0;
    base::UniqueFd spare_;
    TimePoint watch_at_ = never;  // Not watched until then.
    TimePoint tell_at_{};
    std::uint64_t dropped_ = 0;  // Since that was told.
};

}  // namespace weft::na
