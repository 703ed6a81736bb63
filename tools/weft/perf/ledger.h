// `weft perf --ledger`: what each side of a measurement asked of its RDMA card, for one operation.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/metrics.h"

namespace weft::tool {

struct LedgerCount {
    std::string name;
    std::uint64_t count = 0;
};
using LedgerCounts = std::vector<LedgerCount>;

// Of all endpoints of a runtime; empty: none of them has a card.
LedgerCounts read_ledger(Runtime& runtime);

// Both sides' counts. Between begin() and end() nothing but the operations that are measured.
class LedgerMeter {
  public:
    explicit LedgerMeter(PerfClient& client) : client_(client) {}
    // Errors: FAILED_PRECONDITION where a side has no card; those of the call that asks the server.
    Status begin();
    Result<std::vector<LedgerRow>> end(std::uint64_t operations);

  private:
    Result<LedgerCounts> ask();

    PerfClient& client_;
    LedgerCounts here_, there_;
};

// What the server's answer to `perf_ledger` is made of.
std::string encode(const LedgerCounts& counts);

}  // namespace weft::tool
