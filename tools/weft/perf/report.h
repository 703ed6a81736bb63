// The result of `weft perf`, as JSON with fixed fields and as a table. docs/cli.md and PERF_FIELDS
// in tests/tools/cli_test.py repeat the fields.
#pragma once

#include "cli/invocation.h"
#include "perf/options.h"

namespace weft::tool {

struct PerfReport {
    PerfOptions options;
    Measurement measured;
    Floor before;
    Floor after;
    std::string note;  // What makes the figures less meaningful; empty: nothing.

    // The mean of before and after, and their relative difference. nullopt: no floor.
    std::optional<double> floor_ns() const;
    std::optional<double> drift() const;
};

Json to_json(const PerfReport& report);
std::string to_text(const PerfReport& report);

}  // namespace weft::tool
