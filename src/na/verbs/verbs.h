// The verbs transport: RDMA cards by rdma-core itself (docs/adr/0008-verbs-provider.md).
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

// verbs://host:port, where `host` is an address of a network device that an RDMA device is on.
std::unique_ptr<Provider> make_verbs_provider();

}  // namespace weft::na
