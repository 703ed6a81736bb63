// The bare provider: messages between two endpoints with nothing of weft above them. This is the
// metric `na`, and the floor of transports that plain sockets or memory do not measure.
#pragma once

#include <memory>
#include <optional>

#include <weft/result.h>

#include "na/arena.h"
#include "na/registry.h"
#include "perf/options.h"

#include "base/log.h"
#include "base/random.h"

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

// Ping-pong with the echo at `uri` for `window`. size counts the 8 bytes of a frame's head.
Result<Measurement> measure_na(const PerfOptions& options, const std::string& uri, Duration window);

// The same with a server process of its own, as a floor: the median in nanoseconds. nullopt: the
// transport has no message of that size.
Result<std::optional<double>> bare_round_trip_ns(const PerfOptions& options, const CpuPair& cpus,
                                                 Duration budget);

// Echoes all frames until SIGTERM or SIGINT. `listening` gets the address; its error is returned.
Status serve_bare(const PerfOptions& options, Status (*listening)(const std::string& uri));

// Sleeps until the endpoint has work, at most `longest`; at most 1 ms if it has no wait_fd().
void sleep_on(na::Endpoint& endpoint, Duration longest);

}  // namespace weft::tool
