// Counts of an endpoint's operations on its device, which explain the cost of a call, and a model
// that turns them into transactions of PCI Express (docs/performance.md).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft::na::verbs {

struct DeviceCounters {
    // Lists of work requests.
    std::uint64_t doorbells = 0;       // Lists of work requests that were posted to send.
    std::uint64_t locked = 0;          // Those for which the driver takes a lock.
    std::uint64_t lists = 0;           // Those with more than one work request.
    std::uint64_t work_requests = 0;   // In all lists.
    std::uint64_t request_blocks = 0;  // Their length in blocks of 64 bytes.
    std::uint64_t listed_blocks = 0;   // The length of those in `lists`.
    std::uint64_t qp_changes = 0;      // Lists for another queue pair than the last one.

    // Messages and transfers.
    std::uint64_t inline_sends = 0;    // Messages inside their work requests.
    std::uint64_t inline_bytes = 0;    // Their bytes.
    std::uint64_t payload_reads = 0;   // Messages and puts that the device fetched from memory.
    std::uint64_t credit_sends = 0;    // Messages that only return credits.
    std::uint64_t signalled = 0;       // Work requests that request a completion.
    std::uint64_t messages_in = 0;     // Messages that arrived: a completion each.
    std::uint64_t payload_writes = 0;  // Messages with content, and gets: written by the device.
    std::uint64_t page_misses = 0;     // Messages for which MessageMemory::misses_page() is true.
    std::uint64_t receive_posts = 0;   // Lists of receive buffers that were posted.
    std::uint64_t transfers = 0;       // Puts and gets.
    std::uint64_t registrations = 0;   // Of memory.

    struct Counter {
        std::string_view name;
        std::uint64_t DeviceCounters::*count;
    };
    static constexpr std::array<Counter, 18> counters();
};

constexpr std::array<DeviceCounters::Counter, 18> DeviceCounters::counters() {
    return {{{"doorbells", &DeviceCounters::doorbells},
             {"locked doorbells", &DeviceCounters::locked},
             {"lists", &DeviceCounters::lists},
             {"work requests", &DeviceCounters::work_requests},
             {"blocks of work requests", &DeviceCounters::request_blocks},
             {"blocks in lists", &DeviceCounters::listed_blocks},
             {"changes of queue pair", &DeviceCounters::qp_changes},
             {"inline sends", &DeviceCounters::inline_sends},
             {"inline bytes", &DeviceCounters::inline_bytes},
             {"payload reads", &DeviceCounters::payload_reads},
             {"credit sends", &DeviceCounters::credit_sends},
             {"send completions", &DeviceCounters::signalled},
             {"messages in", &DeviceCounters::messages_in},
             {"payload writes", &DeviceCounters::payload_writes},
             {"misses of page", &DeviceCounters::page_misses},
             {"receive posts", &DeviceCounters::receive_posts},
             {"transfers", &DeviceCounters::transfers},
             {"registrations", &DeviceCounters::registrations}}};
}

// Transactions of PCI Express that the counts stand for, by a device as Kalia, Kaminsky and
// Andersen describe it (Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016). The
// processor writes a single work request to the device, 64 bytes at a time; of a longer list the
// device fetches every block. It fetches each receive buffer's description, and writes a completion
// of 64 bytes for each message and each signalled work request. An upper bound: devices fetch
// several blocks at once, and compress completions. The cost of a peer's gets and puts at their
// target is not included.
struct PcieCost {
    std::uint64_t processor_writes = 0;
    std::uint64_t device_reads = 0;
    std::uint64_t device_writes = 0;
};

constexpr PcieCost pcie_cost(const DeviceCounters& counters) {
    PcieCost cost;
    cost.processor_writes = counters.lists + (counters.request_blocks - counters.listed_blocks);
    cost.device_reads = counters.listed_blocks + counters.payload_reads + counters.messages_in;
    cost.device_writes = counters.payload_writes + counters.signalled + counters.messages_in;
    return cost;
}

}  // namespace weft::na::verbs
