// Whether a listener exists at a destination, which libfabric does not report (to libfabric a dead
// peer looks like a busy one for ever).
#pragma once

#include "base/unique_fd.h"
#include "na/socket_name.h"

namespace weft::na::ofi {

// One plain TCP connection attempt, closed as soon as it succeeds or fails.
class ListenerProbe {
  public:
    void start(const SocketName& to);
    bool started() const { return started_; }
    // A listener accepted the attempt. Call why_refused() before.
    bool answered() const { return answered_; }
    // The error number once the attempt has failed; 0 while it is pending or has succeeded.
    // Cost: one poll(2) while it is pending.
    int why_refused();

  private:
    base::UniqueFd fd_;
    bool started_ = false;
    bool answered_ = false;
    int error_ = 0;
};

}  // namespace weft::na::ofi
