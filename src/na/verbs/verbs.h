// The verbs transport: RDMA devices through rdma-core itself (docs/adr/0008-verbs-provider.md).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "na/provider.h"
#include "na/verbs/device_counters.h"

namespace weft::na {

// verbs://host:port, where `host` is an address of a network device that an RDMA device is on.
std::unique_ptr<Provider> make_verbs_provider();

// An address of this machine that an RDMA device is on; nothing: there is none.
std::optional<std::string> find_rdma_host();

// The counters of a verbs endpoint's device; nullptr: the endpoint of another transport.
const verbs::DeviceCounters* device_counters_of(const Endpoint& endpoint);

}  // namespace weft::na
