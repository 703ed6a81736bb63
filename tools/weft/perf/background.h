// Back-to-back transfers beside the measured operations, through the same channel.
#pragma once

#include "perf/metrics.h"

namespace weft::tool {

class Background {
  public:
    Background(PerfClient& client, bool put) : client_(client), put_(put) {}

    // Exposes a region at the server and transfers it once, then keeps one transfer of it in
    // flight. Blocks until the first one has completed.
    Status start(std::uint64_t bytes);
    // Blocks until the last one has completed. Errors: the failure of a transfer.
    Status stop();

    double mib_per_s() const;

  private:
    void issue();

    PerfClient& client_;
    const bool put_;
    RegionRef remote_;
    Buffer local_;
    bool stopping_ = false;
    bool under_way_ = false;
    Status failure_;
    std::uint64_t moved_ = 0;  // Transfers.
    TimePoint since_, until_;
};

}  // namespace weft::tool
