// The speed of the machine without weft, measured next to every figure: virtual cpus drift between
// regimes, so only the ratio of two successive measurements is meaningful.
//
// Each returns the median of many short rounds within `budget`, in nanoseconds.
#pragma once

#include "perf/options.h"

#include <weft/result.h>

namespace weft::tool {

// One cache line stored and loaded back and forth between two cpus, without pause instructions.
// Requires: cpus.two(). Thread: the caller's is bound to cpus.client already.
double line_round_trip_ns(const CpuPair& cpus, Duration budget);

// One memcpy of `bytes` between one reused source and one reused destination, both shared memory
// as weft's arena is.
double copy_ns(std::size_t bytes, Duration budget);

// TCP over loopback, or a pair of UNIX-domain stream sockets.
enum class SocketKind : std::uint8_t { tcp, local };

// The bodies of a round trip. `copied`: each body is first copied into the memory from which it is
// sent, like an argument that is passed by value.
struct RoundTrip {
    std::size_t request = 0;
    std::size_t reply = 0;
    bool copied = false;
};

// A round trip over one connection; each end waits as `wait` specifies. Errors: UNAVAILABLE.
Result<double> socket_round_trip_ns(SocketKind kind, RoundTrip trip, WaitMode wait,
                                    const CpuPair& cpus, Duration budget);

// A round trip through memory that two threads share: each body is copied into it and out of it
// again, and a cache line announces it. Requires: cpus.two(). Thread: as above.
double shared_round_trip_ns(RoundTrip trip, const CpuPair& cpus, Duration budget);

// The cpus of the sender and the receiver: one cpu is often slower, and the source limits a stream.
struct StreamCpus {
    int source;
    int sink;
};

// The time that `bytes` bytes take in a stream over one connection.
Result<double> socket_stream_ns(SocketKind kind, std::size_t bytes, const StreamCpus& cpus,
                                Duration budget);

// The floor for the metric and transport of `options`.
Result<Floor> measure_floor(const PerfOptions& options, const CpuPair& cpus, Duration budget);

// |after - before| / the smaller of both.
double floor_drift(double before, double after);

}  // namespace weft::tool
