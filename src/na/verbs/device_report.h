// What the RDMA devices of this machine report, for `weft info` and reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::na {

struct RdmaGid {
    std::uint32_t index = 0;
    std::string type;     // "IB", "RoCE v1", "RoCE v2".
    std::string address;  // In the notation of IPv6.
    std::string network;  // Its network device; empty: unknown.
};

struct RdmaPort {
    std::uint32_t number = 0;
    std::string state;       // "active", "down", ...
    std::string link_layer;  // "InfiniBand", "Ethernet".
    std::string rate;        // As the kernel prints it: "100 Gb/sec (4X EDR)".
    std::uint32_t mtu_active = 0;
    std::uint32_t mtu_max = 0;
    std::vector<RdmaGid> gids;
};

struct RdmaNetwork {
    std::string name;
    std::vector<std::string> addresses;
};

// One limit of a device.
struct RdmaLimit {
    std::string_view name;
    std::uint64_t value = 0;
};

struct RdmaDevice {
    std::string name;
    std::string firmware;
    std::string kind;  // "channel adapter", "RNIC (iWARP)", ...
    std::string pci;   // "16.0 GT/s PCIe x16"; empty: not on such a bus.
    std::string cpus;  // Close to the device, "0-15"; empty: unknown.
    int numa_node = -1;
    std::vector<RdmaLimit> limits;
    std::vector<RdmaPort> ports;
    std::vector<RdmaNetwork> networks;
    std::vector<std::string> remedies;  // Problems, each with its remedy.
};

// All devices. One that can't be opened has its name, and the reason among its `remedies`.
std::vector<RdmaDevice> report_rdma_devices();

// Why this machine has no usable RDMA device, and the remedy.
std::string why_no_rdma_device();

}  // namespace weft::na
