// The name of the socket that an address stands for, which may take a while to find out.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <weft/result.h>

#include "na/address.h"
#include "na/resolver.h"

namespace weft::na {

// Dropping it abandons the answer.
class Resolution {
  public:
    static std::unique_ptr<Resolution> start(const std::string& host, std::uint16_t port,
                                             TimePoint now,
                                             Resolver& resolver = Resolver::system());
    bool done() const;
    void wait() const;  // Until done().
    // Requires: done(). Errors: UNAVAILABLE.
    Result<SocketName> answer() const;

    Resolution(std::string host, std::uint16_t port,
               std::shared_ptr<const Resolver::Question> question)
        : host_(std::move(host)), port_(port), question_(std::move(question)) {}

  private:
    const std::string host_;
    const std::uint16_t port_;
    const std::shared_ptr<const Resolver::Question> question_;
};

// An address whose host needs no look-up: a numeric one; no host, and localhost, are 127.0.0.1.
std::optional<SocketName> numeric_name(const Address& address);

// For an endpoint that is being opened, which may wait, unlike connect(): the context that it is
// for stands still meanwhile. Errors: UNAVAILABLE.
Result<SocketName> wait_for_name(const Address& address);

}  // namespace weft::na
