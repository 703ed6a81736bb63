// The options of `weft perf`, and its results.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <weft/group_options.h>
#include <weft/options.h>
#include <weft/status.h>

#include "cli/cpus.h"
#include "perf/histogram.h"

namespace weft::tool {

struct PerfOptions {
    std::string metric;
    std::string transport = "sm";
    std::uint64_t size = 64;
    std::optional<std::uint64_t> reply_size;  // rpc, proto; else as `size`.
    std::uint32_t inflight = 1;
    double seconds = 2;
    WaitMode wait = WaitMode::adaptive;
    std::vector<int> cpus;  // The client's and the server's; empty: the first two allowed.
    bool private_memory = false;
    bool copied_floor = false;  // rpc: the floor copies bodies, as calls do.
    std::string beside;         // rpc: "put" or "get" run beside the calls.
    std::uint64_t beside_size = std::uint64_t{64} << 20;
    bool device_counters = false;  // Counts the operations of both RDMA devices.
    std::string without;           // RuntimeOptions::verbs_without of both sides.
    std::uint32_t contexts = 1;    // Of the server that is started; 0: as many as cpus.
    std::uint32_t clients = 1;     // rpc: connections, each of its own runtime.
    double work_us = 0;            // rpc: that each handler computes.
    std::uint32_t ranks = 8;       // bcast: processes of the group, beside the client.
    Topology topology{};           // bcast
    std::string server;            // Empty: a child process.
    std::string listen;            // `serve`, and the listening end of a suite.
    bool bare = false;      // `serve` only: the echo of the `na` metric instead of a runtime.
    std::string suite;      // "rdma": everything for a report on a device.
    std::string report;     // `suite` only: the file of the report; empty: standard output.
    bool perftest = false;  // `suite` with `listen`: the other end may start perftest.

    std::uint64_t reply_bytes() const { return reply_size.value_or(size); }
    bool is_scaled() const { return contexts != 1 || clients != 1 || work_us > 0; }
    GroupCallOptions group_options() const {
        GroupCallOptions options;
        options.topology = topology;
        return options;
    }
    bool is_bulk() const { return metric == "put" || metric == "get"; }
    Duration window() const { return Duration(static_cast<Duration::rep>(seconds * 1e9)); }
};

// One device counter, for one operation.
struct CounterRow {
    std::string name;
    double client = 0;
    double server = 0;
};

struct Measurement {
    Histogram latencies;  // In ticks.
    double ns_per_tick = 1;
    double elapsed_s = 0;
    std::uint64_t started = 0;  // Warm-up included, as in `failed`.
    std::uint64_t failed = 0;
    Status first_failure;
    unsigned contexts = 0;  // rpc: of the server, as a connection to it reports.
    std::optional<double> beside_mib_per_s;
    std::vector<CounterRow> device_counters;

    double ns(double share) const { return latencies.percentile(share) * ns_per_tick; }
    double mean_ns() const { return latencies.mean() * ns_per_tick; }
    double rate() const {
        return elapsed_s > 0 ? static_cast<double>(latencies.count()) / elapsed_s : 0;
    }
};

// The speed of the machine without weft.
struct Floor {
    std::optional<double> round_trip_ns;
    std::optional<double> copy_ns;  // Of `size` bytes: one memcpy, or their share of a stream.
};

// The name, as of the options --spin and --block.
inline const char* name_of(WaitMode wait) {
    return wait == WaitMode::spin ? "spin" : wait == WaitMode::block ? "block" : "adaptive";
}

}  // namespace weft::tool
