#include "na/socket_name.h"

#include <arpa/inet.h>
#include <net/if.h>

#include <charconv>
#include <cstring>

#include "base/unique_fd.h"

namespace weft::na {

// The index of the interface with this name or number. 0: not found.
static unsigned interface_of(const std::string& zone) {
    unsigned index = ::if_nametoindex(zone.c_str());
    if (index != 0) return index;
    const char* const end = zone.data() + zone.size();
    const auto [at, error] = std::from_chars(zone.data(), end, index);
    return error == std::errc() && at == end ? index : 0;
}

std::optional<SocketName> SocketName::from_numeric(const std::string& host, std::uint16_t port) {
    SocketName name;
    if (::inet_pton(AF_INET, host.c_str(), &name.any_.v4.sin_addr) == 1) {
        name.any_.v4.sin_family = AF_INET;
        name.bytes_ = sizeof(sockaddr_in);
        return name.with_port(port);
    }
    const std::size_t percent = host.find('%');
    name.any_.v6 = {};  // The initializer of the union clears only its first member: sin6_scope_id
                        // lies beyond.
    if (::inet_pton(AF_INET6, host.substr(0, percent).c_str(), &name.any_.v6.sin6_addr) == 1) {
        name.any_.v6.sin6_family = AF_INET6;
        name.bytes_ = sizeof(sockaddr_in6);
        if (percent != host.npos) {
            name.any_.v6.sin6_scope_id = interface_of(host.substr(percent + 1));
            if (!name.is_link_local() || name.any_.v6.sin6_scope_id == 0) return std::nullopt;
        }
        return name.with_port(port);
    }
    return std::nullopt;
}

std::optional<SocketName> SocketName::from_path(const std::string& path) {
    SocketName name;
    if (path.empty() || path.size() >= sizeof name.any_.path.sun_path) return std::nullopt;
    name.any_.path = {};
    name.any_.path.sun_family = AF_UNIX;
    std::memcpy(name.any_.path.sun_path, path.data(), path.size());
    name.bytes_ = sizeof(sockaddr_un);
    return name;
}

std::optional<SocketName> SocketName::from_kernel(const sockaddr* from, std::size_t bytes) {
    if (bytes < sizeof(sa_family_t)) return std::nullopt;
    sa_family_t family = 0;
    std::memcpy(&family, from, sizeof family);
    const std::size_t exact = family == AF_INET    ? sizeof(sockaddr_in)
                              : family == AF_INET6 ? sizeof(sockaddr_in6)
                                                   : 0;
    if (exact == 0 || bytes < exact) return std::nullopt;
    SocketName name;
    std::memcpy(&name.any_, from, exact);
    name.bytes_ = exact;
    // Unused parts would make equal names differ as bytes.
    if (family == AF_INET) {
        std::memset(name.any_.v4.sin_zero, 0, sizeof name.any_.v4.sin_zero);
    } else {
        name.any_.v6.sin6_flowinfo = 0;
    }
    return name;
}

std::optional<SocketName> SocketName::from_wire(ByteView bytes) {
    if (bytes.size() > sizeof(sockaddr_in6)) return std::nullopt;
    alignas(sockaddr_in6) std::byte copy[sizeof(sockaddr_in6)] = {};
    if (!bytes.empty()) std::memcpy(copy, bytes.data(), bytes.size());
    auto name = from_kernel(reinterpret_cast<const sockaddr*>(copy), bytes.size());
    if (!name || name->size() != bytes.size()) return std::nullopt;
    if (name->port() == 0 || name->is_any()) return std::nullopt;
    const bool multicast = name->family() == AF_INET
                               ? IN_MULTICAST(ntohl(name->any_.v4.sin_addr.s_addr))
                               : IN6_IS_ADDR_MULTICAST(&name->any_.v6.sin6_addr);
    if (multicast) return std::nullopt;
    return name;
}

std::optional<SocketName> SocketName::route_to(const SocketName& to) {
    // Connecting a datagram socket sends nothing; it only queries the routing table.
    const auto fd = base::UniqueFd::close_on_fork(
        [&] { return ::socket(to.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0); });
    if (!fd || ::connect(fd.get(), to.get(), static_cast<socklen_t>(to.size())) != 0) {
        return std::nullopt;
    }
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    if (::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&name), &bytes) != 0) {
        return std::nullopt;
    }
    auto from = from_kernel(reinterpret_cast<const sockaddr*>(&name), bytes);
    if (from) from = from->with_port(0);
    return from;
}

bool SocketName::is_any() const {
    if (family() == AF_INET) return any_.v4.sin_addr.s_addr == INADDR_ANY;
    if (family() != AF_INET6) return false;
    const in6_addr& v6 = any_.v6.sin6_addr;
    return IN6_IS_ADDR_UNSPECIFIED(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr32[3] == 0);
}

bool SocketName::is_loopback() const {
    if (family() == AF_INET) return ntohl(any_.v4.sin_addr.s_addr) >> 24 == 127;
    if (family() != AF_INET6) return false;
    const in6_addr& v6 = any_.v6.sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

bool SocketName::is_link_local() const {
    return family() == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&any_.v6.sin6_addr);
}

std::uint16_t SocketName::port() const {
    if (empty() || family() == AF_UNIX) return 0;
    return ntohs(family() == AF_INET ? any_.v4.sin_port : any_.v6.sin6_port);
}

std::string SocketName::host() const {
    char text[INET6_ADDRSTRLEN] = "";
    const void* address = family() == AF_INET ? static_cast<const void*>(&any_.v4.sin_addr)
                                              : static_cast<const void*>(&any_.v6.sin6_addr);
    if (empty() || !::inet_ntop(family(), address, text, sizeof text)) return "";
    if (!is_link_local() || any_.v6.sin6_scope_id == 0) return text;
    char zone[IF_NAMESIZE] = "";
    const unsigned index = any_.v6.sin6_scope_id;
    return std::string(text) + "%" +
           (::if_indextoname(index, zone) ? std::string(zone) : std::to_string(index));
}

std::string SocketName::text() const {
    if (family() == AF_UNIX) return any_.path.sun_path;
    const std::string digits = std::to_string(port());
    return family() == AF_INET6 ? "[" + host() + "]:" + digits : host() + ":" + digits;
}

SocketName SocketName::with_port(std::uint16_t port) const {
    SocketName name = *this;
    (family() == AF_INET ? name.any_.v4.sin_port : name.any_.v6.sin6_port) = htons(port);
    return name;
}

}  // namespace weft::na
