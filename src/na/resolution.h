// Which address a host name stands for.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <weft/result.h>

#include "na/address.h"
#include "na/socket_name.h"

namespace weft::na {

// A look-up by a thread of its own, because the system's resolver blocks for seconds.
// Dropping it abandons the answer, not the thread, which ends by itself.
class Resolution {
  public:
    static std::unique_ptr<Resolution> start(const std::string& host, std::uint16_t port);
    bool done() const;
    void wait() const;  // Until done().
    // Requires: done(). Errors: UNAVAILABLE.
    Result<SocketName> answer() const;

  private:
    struct Shared;
    std::shared_ptr<Shared> shared_;
};

// An address whose host needs no look-up: a numeric one; no host, and localhost, are 127.0.0.1.
std::optional<SocketName> numeric_name(const Address& address);

// For an endpoint that is being opened, which may wait, unlike connect(): the context that it is
// for stands still meanwhile. Errors: UNAVAILABLE.
Result<SocketName> wait_for_name(const Address& address);

}  // namespace weft::na
