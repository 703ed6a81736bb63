// The names of the sockets that an address stands for, which may take a while to find out.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <weft/result.h>

#include "na/address.h"
#include "na/resolver.h"

namespace weft::na {

// Dropping it abandons the answer.
class Resolution {
  public:
    static std::unique_ptr<Resolution> start(const Address& to, TimePoint now,
                                             Resolver& resolver = Resolver::system());
    bool done() const;
    void wait() const;  // Until done().
    // In the order to try; not empty. Requires: done(). Errors: UNAVAILABLE; RESOURCE_EXHAUSTED: no
    // thread, or no room to wait.
    Result<std::vector<SocketName>> answers() const;
    // The one for an endpoint that tries one: IPv4 where there is one, as our listeners are.
    Result<SocketName> answer() const;

    Resolution(const Address& to, std::shared_ptr<const Resolver::Question> question)
        : host_(to.host),
          port_(to.port),
          named_by_peer_(to.named_by_peer),
          question_(std::move(question)) {}

  private:
    const std::string host_;
    const std::uint16_t port_;
    const bool named_by_peer_;
    const std::shared_ptr<const Resolver::Question> question_;
};

// An address whose host needs no look-up: a numeric one; no host, and localhost, are 127.0.0.1.
std::optional<SocketName> numeric_name(const Address& address);

// For an endpoint that is being opened, which may wait, unlike connect(): the context that it is
// for stands still meanwhile. Errors: UNAVAILABLE.
Result<SocketName> wait_for_name(const Address& address);

}  // namespace weft::na
