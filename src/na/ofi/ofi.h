// Transports through libfabric (docs/adr/0002-ofi-tcp-provider.md,
// docs/adr/0009-ofi-verbs-provider.md).
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

// ofi+tcp://host:port, and ofi+verbs://host:port, where `host` is an address of a network device
// of an RDMA device. Creating a provider has no effect. The first probe or open sets the
// environment variables of both providers, except those that the user has set (settings.cc), and
// then loads libfabric. No other library of the process may start libfabric before that, and no
// other thread may read the environment while this runs.
std::unique_ptr<Provider> make_ofi_tcp_provider();
std::unique_ptr<Provider> make_ofi_verbs_provider();

}  // namespace weft::na
