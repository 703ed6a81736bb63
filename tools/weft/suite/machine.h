// One host of a suite: the facts behind its figures, as JSON for the report and for the other host.
#pragma once

#include <optional>
#include <string>

#include <weft/result.h>

#include "cli/cpus.h"
#include "cli/invocation.h"
#include "na/verbs/rdma_location.h"

namespace weft::tool {

// The device and cpus of a host that the suite measures.
struct SuiteHost {
    na::RdmaLocation location;
    CpuPair cpus;  // Close to the device if the kernel reports them.
};

// `host` as a numeric address; the resolver maps a name. Errors: INVALID_ARGUMENT.
Result<std::string> to_numeric(const std::string& host);

// For an address of this machine, and for the address that reaches `host`. Errors: those of
// na::find_rdma_location.
Result<SuiteHost> find_suite_host(const std::string& host);
Result<SuiteHost> find_suite_host_towards(const std::string& host);

// {"kernel":…,"cpu":…,…,"device":{…},"counters":{…}}. No name of the host is in it.
Json describe_machine(const SuiteHost& suite_host);

}  // namespace weft::tool
