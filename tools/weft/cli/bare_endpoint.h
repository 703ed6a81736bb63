// One endpoint of a transport with nothing of weft above it, for measurements and self-tests.
#pragma once

#include <memory>
#include <string>

#include <weft/options.h>
#include <weft/result.h>

#include "base/log.h"
#include "base/random.h"
#include "na/arena.h"
#include "na/registry.h"

namespace weft::tool {

// An endpoint and all objects that it needs. Single-threaded; not movable.
class BareEndpoint {
  public:
    // Errors: as na::Provider::open, UNIMPLEMENTED, INVALID_ARGUMENT.
    // `listen_uri` may be empty: then `transport` selects the provider.
    static Result<std::unique_ptr<BareEndpoint>> open(const std::string& transport,
                                                      const std::string& listen_uri,
                                                      WaitMode wait = WaitMode::adaptive);

    na::Endpoint& endpoint() { return *endpoint_; }
    na::Arena& arena() { return *arena_; }
    base::Random& random() { return random_; }

    // Connects and polls until the peer is up. Errors: UNAVAILABLE, DEADLINE_EXCEEDED.
    Result<na::PeerId> connect(const std::string& uri, Duration limit);

  private:
    BareEndpoint();

    base::KernelRandom random_;
    base::Log log_;
    std::shared_ptr<na::Arena> arena_;
    std::shared_ptr<na::Registry> providers_;
    std::unique_ptr<na::Endpoint> endpoint_;
};

// Sleeps until the endpoint has work, at most `longest`; at most 1 ms if it has no wait_fd().
void sleep_on(na::Endpoint& endpoint, Duration longest);

// Copies `frame` into the transport and commits it. False: no room now.
bool send_frame(na::Endpoint& endpoint, na::PeerId peer, ByteView frame);

}  // namespace weft::tool
