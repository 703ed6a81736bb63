// Two questions about a destination that libfabric leaves open: which address a name stands for,
// and whether anybody listens there (to libfabric a dead peer looks like a busy one for ever).
#pragma once

#include <memory>
#include <string>

#include <weft/result.h>

#include "base/unique_fd.h"
#include "na/ofi/socket_name.h"

namespace weft::na::ofi {

// A look-up by a thread of its own, because the system's resolver blocks for seconds.
// Dropping it abandons the answer, not the thread, which ends by itself.
class Resolution {
  public:
    static std::unique_ptr<Resolution> start(const std::string& host, std::uint16_t port);
    bool done() const;
    // Requires: done(). Errors: UNAVAILABLE.
    Result<SocketName> answer() const;

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

// One plain TCP connection attempt, closed as soon as it says anything.
class ListenerProbe {
  public:
    void start(const SocketName& to);
    bool started() const { return started_; }
    // The error number once the destination has refused; 0 while nothing or good is known.
    // Cost: one poll(2) while under way.
    int why_refused();

  private:
    base::UniqueFd fd_;
    bool started_ = false;
    int error_ = 0;
};

}  // namespace weft::na::ofi
