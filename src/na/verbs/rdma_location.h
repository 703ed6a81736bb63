// Where an address is among the RDMA devices of this machine, and the counters of the port.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/result.h>

namespace weft::na {

// The device and port that rdma_cm selects for an address.
struct RdmaLocation {
    std::string device;
    std::uint32_t port = 0;
    std::string gid;  // In the notation of IPv6.
};
// For an address of this machine. Errors: INVALID_ARGUMENT, UNAVAILABLE.
Result<RdmaLocation> find_rdma_location(const std::string& host);
// For the local address from which this machine reaches another one. Blocks for at most two
// seconds.
// Errors: as above.
Result<RdmaLocation> find_rdma_location_towards(const std::string& host);

// A counter of a port, where the kernel has one: packets, and their fates.
struct RdmaCounter {
    std::string name;
    std::uint64_t count = 0;
};
std::vector<RdmaCounter> read_rdma_counters(const RdmaLocation& location);

}  // namespace weft::na
