// The socket addresses of an Address, resolved in the background.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <weft/result.h>

#include "na/address.h"
#include "na/resolver.h"

namespace weft::na {

// Dropping a Resolution abandons its answer.
class Resolution {
  public:
    static std::unique_ptr<Resolution> start(const Address& to, TimePoint now,
                                             Resolver& resolver = Resolver::system());
    bool done() const;
    void wait() const;  // Until done().
    // In the order to try; not empty. Requires: done(). Errors: UNAVAILABLE; RESOURCE_EXHAUSTED: no
    // thread, or the resolver's queue is full.
    Result<std::vector<SocketName>> answers() const;
    // The address for an endpoint that tries only one: IPv4 if there is one, as for listeners.
    Result<SocketName> answer() const;

    Resolution(const Address& to, std::shared_ptr<const Resolver::Query> query)
        : host_(to.host),
          port_(to.port),
          named_by_peer_(to.named_by_peer),
          query_(std::move(query)) {}

  private:
    const std::string host_;
    const std::uint16_t port_;
    const bool named_by_peer_;
    const std::shared_ptr<const Resolver::Query> query_;
};

// The socket address if the host needs no look-up: a numeric host. An empty host and localhost are
// 127.0.0.1.
std::optional<SocketName> numeric_name(const Address& address);

// For opening an endpoint, which may block, unlike connect(): the endpoint's context makes no
// progress meanwhile. Errors: as Resolution::answer().
Result<SocketName> resolve_blocking(const Address& address);

}  // namespace weft::na
