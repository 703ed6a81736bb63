// The results of a suite: data only.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/invocation.h"
#include "perf/options.h"
#include "suite/perftest.h"

namespace weft::tool {

// The figures of one measurement, one for each round in which it succeeded.
struct Series {
    std::vector<double> rounds;
    // The median, of an even number the lower one; nullopt: there are none.
    std::optional<double> median() const;
};

// 64 bytes there and back in ns, calls a second, MiB a second.
struct RoundsOf {
    Series round_trip_ns, round_trip_p99_ns, bare_ns, rate;
    Series get_64k, get_1m, put_64k, put_1m;
    Series perftest[std::size(perftests)];
};

// All mechanisms on, or one of them off.
struct SwitchResult {
    std::string without;  // Empty: all are on.
    std::optional<double> round_trip_ns, rate, get_1m, put_1m;
    std::vector<CounterRow> one_call, many_calls, get;  // One call at a time, 64, gets of 1 MiB.
};

struct SuiteResults {
    std::string date;
    double seconds = 0;               // Of each measurement.
    bool one_host = false;            // Both ends on it.
    Json client, server;              // describe_machine() before anything was measured,
    Json client_after, server_after;  // and afterwards.
    RoundsOf rounds;
    std::vector<SwitchResult> switches;
    std::vector<std::string> missing;  // What was not measured, and why.
    Status first_failure;              // Of a step that should have succeeded.
};

}  // namespace weft::tool
