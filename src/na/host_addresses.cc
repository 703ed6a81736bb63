#include "na/host_addresses.h"

#include <ifaddrs.h>
#include <net/if.h>

#include <algorithm>

#include "na/address.h"
#include "na/resolution.h"

namespace weft::na {

std::vector<SocketName> addresses_of_host() {
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return {};
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

std::vector<SocketName> typable(const SocketName& any, const std::vector<SocketName>& of_host,
                                const SocketName& preferred) {
    const auto of_family = [&](int family) {
        std::vector<SocketName> names;
        for (const SocketName& name : of_host) {
            const bool is_good = name.family() == family && !name.is_loopback() &&
                                 !name.is_link_local() && !name.is_any();
            if (is_good) names.push_back(name.with_port(any.port()));
        }
        const auto first = std::ranges::find(names, preferred.host(), &SocketName::host);
        if (first != names.end()) std::rotate(names.begin(), first, first + 1);
        return names;
    };
    std::vector<SocketName> names = of_family(any.family());
    if (names.empty() && any.family() == AF_INET6) names = of_family(AF_INET);
    if (names.empty()) {
        // A host may have turned IPv6 off, on its loopback too.
        const bool has_own = std::ranges::any_of(of_host, [&](const SocketName& name) {
            return name.family() == any.family() && name.is_loopback();
        });
        const bool is_v6 = any.family() == AF_INET6 && (has_own || of_host.empty());
        const char* loopback = is_v6 ? "::1" : "127.0.0.1";
        names.push_back(*SocketName::from_numeric(loopback, any.port()));
    }
    return names;
}

// Documentation addresses (RFC 5737, RFC 3849): they are routed as any other, and nothing is sent.
static SocketName of_default_route(int family) {
    const char* elsewhere = family == AF_INET ? "192.0.2.1" : "2001:db8::1";
    return SocketName::route_to(*SocketName::from_numeric(elsewhere, 9)).value_or(SocketName());
}

std::vector<std::string> addresses_to_type(const std::string& uri) {
    const Result<Address> address = parse_address(uri);
    // One over verbs is on one device.
    if (!address || address->host.empty() || !address->scheme.ends_with("tcp")) return {uri};
    const auto any = SocketName::from_numeric(address->host, address->port);
    if (!any || !any->is_any()) return {uri};
    std::vector<std::string> uris;
    for (const SocketName& name :
         typable(*any, addresses_of_host(), of_default_route(any->family()))) {
        uris.push_back(address->scheme + "://" + name.text());
    }
    return uris;
}

}  // namespace weft::na
