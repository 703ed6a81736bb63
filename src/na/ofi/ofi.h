// Transports through libfabric (docs/adr/0002-ofi-tcp-provider.md).
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

// ofi+tcp://host:port. Puts FI_AV_REMOVE_CLEANUP, FI_OFI_RXM_BUFFER_SIZE and
// FI_OFI_RXM_MSG_RX_SIZE into the environment unless the user did, so call it before other
// libraries of the process start libfabric and before there are threads that read the environment.
std::unique_ptr<Provider> make_ofi_tcp_provider();

}  // namespace weft::na
