// `weft perf --ledger`: operations of each side's RDMA device, for one measured operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/metrics.h"

namespace weft::tool {

struct DeviceCount {
    std::string name;
    std::uint64_t count = 0;
};
using DeviceCounts = std::vector<DeviceCount>;

// Of the first endpoint that has a device, of the context that this thread is in, where the
// measured connection is; empty: none has.
DeviceCounts read_device_counters(Runtime& runtime);

// The counts of both sides. Between begin() and end() only the measured operations may run.
class DeviceCounterMeter {
  public:
    explicit DeviceCounterMeter(PerfClient& client) : client_(client) {}
    // Errors: FAILED_PRECONDITION where a side has no device; those of the call to the server.
    Status begin();
    Result<std::vector<CounterRow>> end(std::uint64_t operations);

  private:
    Result<DeviceCounts> query_server();

    PerfClient& client_;
    DeviceCounts client_before_, server_before_;
};

// The server's reply to `perf_device_counters`.
std::string encode(const DeviceCounts& counts);

}  // namespace weft::tool
