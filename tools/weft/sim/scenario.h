// What `weft sim` runs: a scenario is a workload under faults whose every outcome is judged.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <weft/time.h>

#include "sim/rules.h"

namespace weft::tool {

// One seed's run.
struct SimRun {
    std::uint64_t seed = 0;
    std::uint64_t calls = 0;
    std::uint64_t faults = 0;
    std::uint64_t trace_hash = 0;
    Duration virtual_time{};
    // Each "invariant: what was seen"; empty: it held.
    std::vector<std::string> broken;
    Tallies tallies{};
    std::vector<std::string> flight;  // The last that happened before the first of them broke.
};

struct SimOptions {
    std::string scenario = "rpc";
    std::uint32_t nodes = 16;
    bool verbose = false;  // Tells faults and odd outcomes on standard error, as they happen.
};

using Scenario = SimRun (*)(std::uint64_t seed, const SimOptions& options);

SimRun run_rpc_scenario(std::uint64_t seed, const SimOptions& options);
SimRun run_bulk_scenario(std::uint64_t seed, const SimOptions& options);
SimRun run_group_scenario(std::uint64_t seed, const SimOptions& options);

}  // namespace weft::tool
