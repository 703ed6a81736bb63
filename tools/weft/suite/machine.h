// One host of a suite: what its figures depend on, as JSON for the report and for the other host.
#pragma once

#include <optional>
#include <string>

#include <weft/result.h>

#include "cli/cpus.h"
#include "cli/invocation.h"
#include "na/verbs/place.h"

namespace weft::tool {

// Where this host is in the suite.
struct Seat {
    na::RdmaPlace place;
    CpuPair cpus;  // Close to the device where the kernel says which are.
};

// `host` as digits: what the resolver makes of a name. Errors: INVALID_ARGUMENT.
Result<std::string> to_numeric(const std::string& host);

// The seat of an address of this machine, and of one that reaches `host`. Errors: those of
// na::find_rdma_place.
Result<Seat> take_seat(const std::string& host);
Result<Seat> take_seat_towards(const std::string& host);

// {"kernel":…,"cpu":…,…,"device":{…},"counters":{…}}. No name of the host is in it.
Json describe_machine(const Seat& seat);

// "0-3,8" as numbers; empty when it is nothing of the kind.
std::vector<int> parse_cpu_list(const std::string& text);

}  // namespace weft::tool
