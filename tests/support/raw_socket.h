// Plain sockets connected to the address of a server.
#pragma once

#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "base/unique_fd.h"
#include "na/address.h"
#include "na/sm/names.h"
#include "na/socket_name.h"
#include "support/catch.h"

namespace weft::test {

inline base::UniqueFd connect_raw(const std::string& uri) {
    if (uri.starts_with("sm://")) {
        const auto address =
            na::sm::socket_address(na::sm::names_directory().value(), uri.substr(5) + ".sock");
        base::UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
        REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address),
                          sizeof *address) == 0);
        return socket;
    }
    const na::Address address = na::parse_address(uri).value();
    const auto name = address.name.empty()
                          ? na::SocketName::from_numeric(address.host, address.port)
                          : na::SocketName::from_path(address.name);
    base::UniqueFd socket(::socket(name->family(), SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(socket.get(), name->get(), static_cast<socklen_t>(name->size())) == 0);
    return socket;
}

// False: the server disconnected.
inline bool say(int socket, ByteView bytes) {
    while (!bytes.empty()) {
        const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (sent <= 0) return false;
        bytes = bytes.subspan(static_cast<std::size_t>(sent));
    }
    return true;
}

// Reads and discards until the server disconnects.
inline bool is_hung_up(int socket) {
    const timeval limit{30, 0};
    REQUIRE(::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0);
    char room[4096];
    ssize_t got = 0;
    while ((got = ::recv(socket, room, sizeof room, 0)) > 0) {
    }
    return got == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
}

// Ends the connection with a reset, which discards all data in flight.
inline void reset(base::UniqueFd& socket) {
    const linger at_once{1, 0};
    (void)::setsockopt(socket.get(), SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    socket.reset();
}

}  // namespace weft::test
