// The bare provider: messages between two endpoints with nothing of weft above them. This is the
// metric `na`, and the floor of transports that plain sockets or memory do not measure.
#pragma once

#include <memory>
#include <optional>

#include <weft/result.h>

#include "cli/bare_endpoint.h"
#include "perf/options.h"

namespace weft::tool {

// Ping-pong with the echo at `uri` for `window`. size counts the 8 bytes of a frame's head.
Result<Measurement> measure_na(const PerfOptions& options, const std::string& uri, Duration window);

// The same with a server process of its own, as a floor: the median in nanoseconds. nullopt: the
// transport has no message of that size.
Result<std::optional<double>> bare_round_trip_ns(const PerfOptions& options, const CpuPair& cpus,
                                                 Duration budget);

// Echoes all frames until SIGTERM or SIGINT. `listening` gets the address; its error is returned.
Status serve_bare(const PerfOptions& options, Status (*listening)(const std::string& uri));

}  // namespace weft::tool
