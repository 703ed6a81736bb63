// A question about a destination that libfabric leaves open: whether anybody listens there (to
// libfabric a dead peer looks like a busy one for ever).
#pragma once

#include "base/unique_fd.h"
#include "na/socket_name.h"

namespace weft::na::ofi {

// One plain TCP connection attempt, closed as soon as it says anything.
class ListenerProbe {
  public:
    void start(const SocketName& to);
    bool started() const { return started_; }
    // A listener took the attempt: to be asked after why_refused().
    bool answered() const { return answered_; }
    // The error number once the destination has refused; 0 while nothing or good is known.
    // Cost: one poll(2) while under way.
    int why_refused();

  private:
    base::UniqueFd fd_;
    bool started_ = false;
    bool answered_ = false;
    int error_ = 0;
};

}  // namespace weft::na::ofi
