// How a listener takes connections when descriptors or memory run out, or the system refuses.
//
// A connection that stays in the backlog keeps the epoll set readable for ever, and its thread
// awake. So one descriptor is kept to accept such a connection and to refuse it as busy: its client
// tries again. Where even that is gone (another thread was quicker), or accept() fails otherwise,
// the listener is not watched for a while.
#pragma once

#include <cstdint>
#include <string>

#include <weft/status.h>
#include <weft/time.h>

#include "base/log.h"
#include "base/unique_fd.h"

namespace weft::na {

class Admission {
  public:
    static constexpr Duration rest = 100ms;  // Of a listener that can take nobody.
    static constexpr Duration tell_every = 1s;

    // Sends why a connection is refused.
    using Refuse = void (*)(int socket, const Status& why);

    // Watches `listener` by `epoll` under `id`; both must live as long as this. False: errno.
    bool open(int epoll, int listener, std::uint64_t id, Refuse refuse);

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
    bool refuse_one();
    void note_refused(TimePoint now, base::Log& log, const std::string& address);
    void note_failed(int error, TimePoint now, base::Log& log, const std::string& address);
    bool watch(bool wanted) const;

    int epoll_ = -1;
    int listener_ = -1;
    std::uint64_t id_ = 0;
    Refuse refuse_ = nullptr;
    base::UniqueFd spare_;
    TimePoint watch_at_ = never;  // Not watched until then.
    TimePoint tell_at_{};
    std::uint64_t refused_ = 0;  // Since that was told.
};

}  // namespace weft::na
