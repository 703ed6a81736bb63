// A socket address: IPv4 or IPv6 with a port, or a path, in the kernel's form.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cstdint>
#include <optional>
#include <string>

#include <weft/bytes.h>

namespace weft::na {

class SocketName {
  public:
    SocketName() = default;  // Empty.

    // Nothing when `host` is no numeric address, or has a zone ("fe80::1%eth0") without being
    // link-local, or a zone that is neither the name of an interface of this host nor a number.
    static std::optional<SocketName> from_numeric(const std::string& host, std::uint16_t port);
    // Parses bytes that a peer sent. Nothing unless they are exactly one usable destination: a
    // port, and a host that is neither "any" nor a multicast group.
    static std::optional<SocketName> from_wire(ByteView bytes);
    static std::optional<SocketName> from_kernel(const sockaddr* name, std::size_t bytes);
    // A UNIX-domain socket. Nothing when the path is empty or too long.
    static std::optional<SocketName> from_path(const std::string& path);
    // The address this host would use to reach `to`, with port 0.
    static std::optional<SocketName> route_to(const SocketName& to);

    bool empty() const { return bytes_ == 0; }
    int family() const { return any_.sa.sa_family; }
    bool is_any() const;
    bool is_loopback() const;
    bool is_link_local() const;  // IPv6: unusable without its interface.
    std::uint16_t port() const;
    std::string host() const;  // Numeric, no brackets; with its interface if it is link-local.
    std::string text() const;  // host:port, [host]:port for IPv6, or the path.

    SocketName with_port(std::uint16_t port) const;

    const sockaddr* get() const { return &any_.sa; }
    std::size_t size() const { return bytes_; }
    ByteView bytes() const { return {reinterpret_cast<const std::byte*>(&any_), bytes_}; }

  private:
    union {
        sockaddr sa;
        sockaddr_in v4;
        sockaddr_in6 v6;
        sockaddr_un path;
    } any_{};
    std::size_t bytes_ = 0;
};

}  // namespace weft::na
