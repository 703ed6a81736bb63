// How a listener accepts connections when descriptors or memory run out, or accept() fails
// otherwise.
//
// A connection that stays in the backlog keeps the epoll set readable and its thread awake. So one
// spare descriptor is kept, with which such a connection is accepted and refused as busy; the
// client retries. If another thread takes the spare first, or accept() fails otherwise, the
// listener is not watched for a while.
#pragma once

#include <cstdint>
#include <string>

#include <weft/status.h>
#include <weft/time.h>

#include "base/log.h"
#include "base/unique_fd.h"
#include "na/door.h"

namespace weft::na {

class Acceptor {
  public:
    static constexpr Duration retry_after = 100ms;  // Pause of a listener that can't accept.
    static constexpr Duration log_interval = 1s;

    // Sends the reason of a refusal to the client.
    using Refuse = void (*)(int socket, const Status& why);

    // Watches `listener` with `epoll` under `id`, while `duty` is on; both must outlive the
    // acceptor. False: errno.
    bool open(int epoll, int listener, std::uint64_t id, Refuse refuse, AcceptDuty duty = {});

    // The next connection, non-blocking; empty: none can be accepted now. `address`: for the log.
    base::UniqueFd accept(TimePoint now, base::Log& log, const std::string& address);
    // Accepts no connection before `until` or resume(): connections wait in the listener's queue.
    void pause_until(TimePoint until);
    void resume() {
        if (paused_until_ != TimePoint::min()) paused_until_ = serve_at_ = TimePoint::min();
    }
    // Call when next_deadline() has passed; earlier calls cost one comparison.
    void serve(TimePoint now);
    TimePoint next_deadline() const { return serve_at_; }

  private:
    base::UniqueFd accept_raw() const;
    bool refuse_one();
    void note_refused(TimePoint now, base::Log& log, const std::string& address);
    void note_failed(int error, TimePoint now, base::Log& log, const std::string& address);
    void keep_spare();
    bool watch(bool wanted);

    int epoll_ = -1;
    int listener_ = -1;
    std::uint64_t id_ = 0;
    Refuse refuse_ = nullptr;
    base::UniqueFd spare_;
    AcceptDuty duty_;
    bool is_watched_ = false;
    TimePoint paused_until_ = TimePoint::min();
    TimePoint serve_at_ = never;
    TimePoint next_log_{};
    std::uint64_t refused_since_log_ = 0;  // Since the last log line.
};

}  // namespace weft::na
