// `weft perf --suite rdma`: one command on each of two hosts, and a report to send.
#pragma once

#include "cli/invocation.h"
#include "perf/options.h"

namespace weft::tool {

// With `options.listen` runs the listening end, else the end that measures and writes
// `options.report` (empty: to standard output).
void run_suite(const PerfOptions& options, Invocation& invocation);

}  // namespace weft::tool
