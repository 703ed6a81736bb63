// The result of `weft perf`, as JSON with fixed fields and as a table.
#pragma once

#include "cli/invocation.h"
#include "perf/options.h"

namespace weft::tool {

struct PerfReport {
    PerfOptions options;
    Measurement measured;
    Floor before;
    Floor after;
    std::string note;  // What made the figures worth less; empty: nothing known.

    // The mean of before and after, and how far they are apart. nullopt: there is none.
    std::optional<double> floor_ns() const;
    std::optional<double> drift() const;
};

Json to_json(const PerfReport& report);
std::string to_text(const PerfReport& report);

}  // namespace weft::tool
