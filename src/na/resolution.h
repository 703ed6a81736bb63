// Which address a host name stands for.
#pragma once

#include <memory>
#include <string>

#include <weft/result.h>

#include "na/socket_name.h"

namespace weft::na {

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

}  // namespace weft::na
