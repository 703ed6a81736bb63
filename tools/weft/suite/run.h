// The measuring end of a suite: everything in its order, with a line on standard error for each.
#pragma once

#include <weft/result.h>

#include "perf/options.h"
#include "suite/results.h"

namespace weft::tool {

// Measures the listening end at `options.server`, or one of its own on this machine. What can't be
// measured is in the results; errors are those without which there are none.
Result<SuiteResults> measure_suite(const PerfOptions& options);

}  // namespace weft::tool
