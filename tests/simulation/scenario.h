// The scenarios of `weft sim`: each is a workload under faults, with checks of every outcome.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <weft/time.h>

#include "cli/invocation.h"
#include "simulation/rules.h"

namespace weft::scenarios {

using tool::Json;

// One seed's run.
struct SimRun {
    std::uint64_t seed = 0;
    std::uint64_t calls = 0;
    std::uint64_t faults = 0;
    std::uint64_t trace_hash = 0;
    Duration virtual_time{};
    // Each "invariant: observation"; empty: all held.
    std::vector<std::string> broken;
    Tallies tallies{};
    std::vector<std::string> flight;  // The last events before the first violation.
    // Of scenarios that measure:
    std::optional<double> over_bound;
    Json figures;       // For --json, beside the figures of all scenarios; null: none.
    std::string table;  // For people.
};

struct SimOptions {
    std::string scenario = "rpc";
    std::uint32_t nodes = 16;
    bool verbose = false;  // Prints faults and failures to standard error as they happen.
};

using Scenario = SimRun (*)(std::uint64_t seed, const SimOptions& options);

SimRun run_rpc_scenario(std::uint64_t seed, const SimOptions& options);
SimRun run_bulk_scenario(std::uint64_t seed, const SimOptions& options);
SimRun run_group_scenario(std::uint64_t seed, const SimOptions& options);
SimRun run_bcast_scenario(std::uint64_t seed, const SimOptions& options);

}  // namespace weft::scenarios
