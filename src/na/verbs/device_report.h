// What the RDMA devices of this machine say of themselves, for people: `weft info`, and reports.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace weft::na {

struct RdmaGid {
    std::uint32_t index = 0;
    std::string type;     // "IB", "RoCE v1", "RoCE v2".
    std::string address;  // As an IPv6 address is written.
    std::string network;  // The network device that it is of; empty: none is known.
};

struct RdmaPort {
    std::uint32_t number = 0;
    std::string state;       // "active", "down", ...
    std::string link_layer;  // "InfiniBand", "Ethernet".
    std::string rate;        // In the kernel's words: "100 Gb/sec (4X EDR)".
    std::uint32_t mtu_active = 0;
    std::uint32_t mtu_max = 0;
    std::vector<RdmaGid> gids;
};

struct RdmaNetwork {
    std::string name;
    std::vector<std::string> addresses;
};

// One number that bounds what is built on a device.
struct RdmaLimit {
    std::string_view name;
    std::uint64_t value = 0;
};

struct RdmaDevice {
    std::string name;
    std::string firmware;
    std::string kind;  // "channel adapter", "RNIC (iWARP)", ...
    std::string pci;   // "16.0 GT/s PCIe x16"; empty: it is on no such bus.
    std::string cpus;  // Those close to it, "0-15"; empty: unknown.
    int numa_node = -1;
    std::vector<RdmaLimit> limits;
    std::vector<RdmaPort> ports;
    std::vector<RdmaNetwork> networks;
    std::vector<std::string> mends;  // What hurts, and what to do about it.
};

// All of them. One that can't be opened has its name and the reason among its `mends`.
std::vector<RdmaDevice> report_rdma_devices();

// Why there is none, and how to get one.
std::string why_no_rdma_device();

}  // namespace weft::na
