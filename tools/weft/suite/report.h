// The results of a suite, as JSON and as a Markdown report.
#pragma once

#include <string>

#include "cli/invocation.h"
#include "suite/results.h"

namespace weft::tool {

Json to_json(const SuiteResults& results);
// Markdown with all sections, also if nothing could be measured; the JSON is the last one.
std::string to_markdown(const SuiteResults& results);

// One line of the comparison: "64 B there and back", weft's figure, perftest's figure.
struct Comparison {
    std::string what;
    std::string unit;  // "ns", "MiB/s".
    std::optional<double> ours, theirs, ratio;
};
// The ratio is the median over the rounds in which both were measured.
std::vector<Comparison> compare(const SuiteResults& results);

}  // namespace weft::tool
