// Where an address is among the RDMA devices of this machine, and what the port there counts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/result.h>

namespace weft::na {

// The device and port that rdma_cm takes for an address.
struct RdmaPlace {
    std::string device;
    std::uint32_t port = 0;
    std::string gid;  // As an IPv6 address is written.
};
// Of an address of this machine. Errors: INVALID_ARGUMENT, UNAVAILABLE.
Result<RdmaPlace> find_rdma_place(const std::string& host);
// Of the address that this machine reaches another one from. Blocks for at most two seconds.
// Errors: as above.
Result<RdmaPlace> find_rdma_place_towards(const std::string& host);

// What a port counts, where the kernel has it: packets, and what became of them.
struct RdmaCounter {
    std::string name;
    std::uint64_t count = 0;
};
std::vector<RdmaCounter> read_rdma_counters(const RdmaPlace& place);

}  // namespace weft::na
