// The measuring end of a suite: runs all steps in order, with a line on standard error for each.
#pragma once

#include <weft/result.h>

#include "perf/options.h"
#include "suite/results.h"

namespace weft::tool {

// Measures the listening end at `options.server`, or one of its own on this machine. Failed steps
// are in the results; an error means that there are no results.
Result<SuiteResults> measure_suite(const PerfOptions& options);

}  // namespace weft::tool
