// What a suite found, as JSON and as a page that people send.
#pragma once

#include <string>

#include "cli/invocation.h"
#include "suite/results.h"

namespace weft::tool {

Json to_json(const SuiteResults& results);
// Markdown: every section is there, also where nothing could be measured; the JSON is its last.
std::string to_markdown(const SuiteResults& results);

// One line of the comparison with what stands beside: "64 B there and back", ours, theirs.
struct Comparison {
    std::string what;
    std::string unit;  // "ns", "MiB/s".
    std::optional<double> ours, theirs, ratio;
};
// The ratio is the median of those of the rounds that both were measured in.
std::vector<Comparison> compare(const SuiteResults& results);

}  // namespace weft::tool
