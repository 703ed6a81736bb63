// The tcp transport: sockets, two per peer, driven by the context's own turns (docs/adr/0004).
#pragma once

#include <memory>

#include "na/provider.h"

namespace weft::na {

std::unique_ptr<Provider> make_tcp_provider();
// The same over UNIX-domain sockets: unix:///path.
std::unique_ptr<Provider> make_unix_provider();

}  // namespace weft::na
