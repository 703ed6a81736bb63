// What others type to reach a listener on all addresses of this host (0.0.0.0, [::]).
#pragma once

#include <string>
#include <vector>

#include "na/socket_name.h"

namespace weft::na {

// Of interfaces that are up, in the order of the kernel; loopback and link-local ones too. Empty:
// the system does not say.
std::vector<SocketName> addresses_of_host();

// Those of `of_host` that reach a listener at `any`, with its port: of its family, and of IPv4
// where one on [::] has none of its own; `preferred` first; loopback where nothing else is there.
// Not empty. Requires: any.is_any().
std::vector<SocketName> typable(const SocketName& any, const std::vector<SocketName>& of_host,
                                const SocketName& preferred);

// What to type to reach an endpoint whose address() is `uri`: that, or, of one over tcp or ofi+tcp
// that listens on all addresses, each, the one of the default route first.
std::vector<std::string> addresses_to_type(const std::string& uri);

}  // namespace weft::na
