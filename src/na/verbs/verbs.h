// The verbs transport: RDMA cards by rdma-core itself (docs/adr/0008-verbs-provider.md).
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "na/provider.h"
#include "na/verbs/ledger.h"

namespace weft::na {

// verbs://host:port, where `host` is an address of a network device that an RDMA device is on.
std::unique_ptr<Provider> make_verbs_provider();

// An address of this machine that an RDMA device is on; nothing: there is none.
std::optional<std::string> find_rdma_host();

// What a verbs endpoint asked of its card; nullptr: the endpoint of another transport.
const verbs::Ledger* ledger_of(const Endpoint& endpoint);

}  // namespace weft::na
