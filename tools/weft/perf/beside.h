// Transfers back to back that go on beside what is measured, through the same channel.
#pragma once

#include "perf/metrics.h"

namespace weft::tool {

class Background {
  public:
    Background(PerfClient& client, bool put) : client_(client), put_(put) {}

    // Exposes a region there and moves it once, then keeps one transfer of it under way. Blocks
    // for the first.
    Status start(std::uint64_t bytes);
    // Blocks until the last has ended. Errors: the first that any of them met.
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
