// What others type to reach a listener on all addresses of this host (0.0.0.0, [::]).
#pragma once

#include <string>
#include <vector>

#include <weft/result.h>

#include "na/socket_name.h"

namespace weft::na {

// Of interfaces that are up, in the order of the kernel; loopback and link-local ones too.
// Errors: UNAVAILABLE (the system does not list them: no AF_NETLINK in a sandbox).
Result<std::vector<SocketName>> addresses_of_host();

// Those of `of_host` that reach a listener at `port` on all addresses of these families, by
// family; of each those in `routes` first. Where the host lists none, those in `routes`; loopback
// where nothing else is there. Not empty. Requires: a family, AF_INET or AF_INET6.
std::vector<SocketName> typable(std::uint16_t port, const std::vector<int>& families,
                                const std::vector<SocketName>& of_host,
                                const std::vector<SocketName>& routes);

// What to type to reach an endpoint whose address() is `uri`: that, or, of one over tcp or ofi+tcp
// that listens on all addresses, each, those of the default routes first. One over tcp on [::]
// has the addresses of IPv4 as well.
struct Typable {
    std::vector<std::string> uris;
    Status trouble;  // Why there may be more than those.
};
Typable addresses_to_type(const std::string& uri);

}  // namespace weft::na
