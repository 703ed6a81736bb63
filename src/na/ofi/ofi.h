// Transports through libfabric (docs/adr/0002-ofi-tcp-provider.md,
// docs/adr/0009-ofi-verbs-provider.md).
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

// ofi+tcp://host:port, and ofi+verbs://host:port, where `host` is an address of a network device
// that an RDMA device is on. Each puts what libfabric is to be started with into the environment,
// for both and unless the user did (settings.cc), so call it before other libraries of the process
// start libfabric and before there are threads that read the environment. Nothing else happens
// until an endpoint is opened or the provider is probed.
std::unique_ptr<Provider> make_ofi_tcp_provider();
std::unique_ptr<Provider> make_ofi_verbs_provider();

}  // namespace weft::na
