// The addresses at which other hosts reach a listener on all addresses of this host (0.0.0.0,
// [::]).
#pragma once

#include <string>
#include <vector>

#include <weft/result.h>

#include "na/socket_name.h"

namespace weft::na {

// The addresses of interfaces that are up, in the kernel's order, with loopback and link-local
// ones.
// Errors: UNAVAILABLE (the system does not list them: no AF_NETLINK in a sandbox).
Result<std::vector<SocketName>> addresses_of_host();

// The addresses of `of_host` that reach a listener at `port` on all addresses of `families`, by
// family; within a family, addresses in `routes` first. If `of_host` is empty, `routes` takes its
// place. Without any other address, loopback; never empty. Requires: a family, AF_INET or AF_INET6.
std::vector<SocketName> reachable_names(std::uint16_t port, const std::vector<int>& families,
                                        const std::vector<SocketName>& of_host,
                                        const std::vector<SocketName>& routes);

// The URIs that reach an endpoint with address() `uri`: `uri` itself or, if the endpoint listens on
// all addresses over tcp or ofi+tcp, one URI per address, those of the default routes first. A tcp
// endpoint on [::] has the addresses of IPv4 as well.
struct ListenerAddresses {
    std::vector<std::string> uris;
    Status incomplete_because;  // Why addresses may be missing.
};
ListenerAddresses reachable_addresses(const std::string& uri);

}  // namespace weft::na
