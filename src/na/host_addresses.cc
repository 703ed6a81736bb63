#include "na/host_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <optional>

#include "na/address.h"
#include "na/resolution.h"

namespace weft::na {

Result<std::vector<SocketName>> addresses_of_host() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) {
        return fail(Code::unavailable, std::string("getifaddrs: ") + std::strerror(errno));
    }
    std::vector<SocketName> names;
    for (const ifaddrs* at = all; at; at = at->ifa_next) {
        if (!at->ifa_addr || (at->ifa_flags & IFF_UP) == 0) continue;
        const int family = at->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const std::size_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (const auto name = SocketName::from_kernel(at->ifa_addr, bytes)) names.push_back(*name);
    }
    ::freeifaddrs(all);
    return names;
}

std::vector<SocketName> reachable_names(std::uint16_t port, const std::vector<int>& families,
                                        const std::vector<SocketName>& of_host,
                                        const std::vector<SocketName>& routes) {
    std::vector<SocketName> names;
    const auto add = [&](const SocketName& name, int family) {
        const bool is_good =
            name.family() == family && !name.is_loopback() && !name.is_link_local() &&
            !name.is_any() &&
            std::ranges::find(names, name.host(), &SocketName::host) == names.end();
        if (is_good) names.push_back(name.with_port(port));
    };
    for (const int family : families) {
        for (const SocketName& name : routes) {
            const bool is_of_host =
                of_host.empty() ||
                std::ranges::find(of_host, name.host(), &SocketName::host) != of_host.end();
            if (is_of_host) add(name, family);
        }
        for (const SocketName& name : of_host) add(name, family);
    }
    if (!names.empty()) return names;
    for (const int family : families) {
        // IPv6 may be disabled on this host, also on its loopback.
        const bool has_own = std::ranges::any_of(of_host, [&](const SocketName& name) {
            return name.family() == family && name.is_loopback();
        });
        if (!has_own && !of_host.empty() && family != families.back()) continue;
        names.push_back(*SocketName::from_numeric(family == AF_INET ? "127.0.0.1" : "::1", port));
        break;
    }
    return names;
}

// Documentation addresses (RFC 5737, RFC 3849) are routed as any other; nothing is sent to them.
static std::optional<SocketName> of_default_route(int family) {
    const char* elsewhere = family == AF_INET ? "192.0.2.1" : "2001:db8::1";
    return SocketName::route_to(*SocketName::from_numeric(elsewhere, 9));
}

ListenerAddresses reachable_addresses(const std::string& uri) {
    const Result<Address> address = parse_address(uri);
    // A verbs endpoint listens on one device.
    if (!address || address->host.empty() || !address->scheme.ends_with("tcp")) return {{uri}, {}};
    const auto any = SocketName::from_numeric(address->host, address->port);
    if (!any || !any->is_any()) return {{uri}, {}};
    std::vector<int> families = {any->family()};
    // A libfabric endpoint has one address family.
    if (any->family() == AF_INET6 && address->scheme == "tcp") families.push_back(AF_INET);
    std::vector<SocketName> routes;
    for (const int family : families) {
        if (const auto route = of_default_route(family)) routes.push_back(*route);
    }
    const Result<std::vector<SocketName>> of_host = addresses_of_host();
    ListenerAddresses reachable;
    for (const SocketName& name : reachable_names(
             any->port(), families, of_host ? *of_host : std::vector<SocketName>(), routes)) {
        reachable.uris.push_back(address->scheme + "://" + name.text());
    }
    if (!of_host)
        reachable.incomplete_because =
            Status(of_host.status()).in(uri + ": the addresses of this host");
    return reachable;
}

}  // namespace weft::na
