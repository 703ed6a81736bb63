#include "na/tcp/socket.h"

#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::na::tcp {
namespace {

// All ranks of a large job may start in one second; the kernel limits this to somaxconn.
constexpr int backlog = 4096;

// Core's heartbeats detect a lost host while operations are in progress. These options detect it on
// idle connections, and for bytes that the kernel still has to send.
constexpr int keep_idle_s = 10;
constexpr int keep_every_s = 3;
constexpr int keep_tries = 3;
constexpr unsigned unacknowledged_ms_max = 20'000;
// While the answer to the hello is awaited: a lost host is detected within 3 s.
constexpr int keep_handshake_s = 1;
constexpr unsigned unacknowledged_handshake_ms_max = 2'000;

void set(int socket, int level, int option, int value) {
    // A failure is ignored: the connection works without the option, less well.
    (void)::setsockopt(socket, level, option, &value, sizeof value);
}

Status no_socket() {
    const bool full = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
    return fail(full ? Code::resource_exhausted : Code::unavailable,
                std::string("socket: ") + std::strerror(errno));
}

}  // namespace

void set_lasting_options(int socket) {
    set(socket, IPPROTO_TCP, TCP_NODELAY, 1);
    set(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, keep_idle_s);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, keep_every_s);
    set(socket, IPPROTO_TCP, TCP_KEEPCNT, keep_tries);
    set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unacknowledged_ms_max));
}

void set_handshake_options(int socket) {
    set(socket, IPPROTO_TCP, TCP_KEEPIDLE, keep_handshake_s);
    set(socket, IPPROTO_TCP, TCP_KEEPINTVL, keep_handshake_s);
    set(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(unacknowledged_handshake_ms_max));
}

Result<base::UniqueFd> listen_at(const SocketName& at, const std::string& uri) {
    auto socket = base::UniqueFd::close_on_fork(
        [&] { return ::socket(at.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
    if (!socket) return no_socket().in(uri);
    // Closing connections of a dead predecessor do not block the port; a live listener does.
    set(socket.get(), SOL_SOCKET, SO_REUSEADDR, 1);
    // A listener on [::] accepts IPv4 as well, whatever the system's default is.
    if (at.family() == AF_INET6 && at.is_any()) set(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, 0);
    if (::bind(socket.get(), at.get(), static_cast<socklen_t>(at.size())) != 0 ||
        ::listen(socket.get(), backlog) != 0) {
        const int error = errno;
        const std::string why = uri + ": " + std::strerror(error);
        if (error == EADDRINUSE) {
            // A listener on [::] has the IPv4 port as well; it may be of this process.
            return fail(Code::already_exists, uri + ": a socket listens on that port already");
        }
        if (error == EACCES || error == EPERM) return fail(Code::permission_denied, why);
        if (error == EADDRNOTAVAIL) {
            return fail(Code::unavailable, uri + ": no interface of this host has that address");
        }
        return fail(Code::unavailable, why);
    }
    return socket;
}

Result<base::UniqueFd> start_connecting(const SocketName& to) {
    auto socket = base::UniqueFd::close_on_fork(
        [&] { return ::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
    if (!socket) return no_socket();
    set_lasting_options(socket.get());
    if (::connect(socket.get(), to.get(), static_cast<socklen_t>(to.size())) != 0 &&
        errno != EINPROGRESS && errno != EINTR) {
        if (errno == EAGAIN) return base::UniqueFd();
        const bool is_absent = errno == ENOENT || errno == ECONNREFUSED;
        return fail(Code::unavailable, is_absent ? "nothing listens there" : std::strerror(errno));
    }
    return socket;
}

std::size_t unacknowledged_bytes(int socket) {
    int bytes = 0;
    return ::ioctl(socket, SIOCOUTQ, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

std::size_t waiting_bytes(int socket) {
    int bytes = 0;
    return ::ioctl(socket, SIOCOUTQNSD, &bytes) == 0 ? static_cast<std::size_t>(bytes) : 0;
}

void set_accepted_options(int socket) {
    set_lasting_options(socket);
    use_plain_congestion_control(socket);
}

static SocketName name_by(int (*send_request)(int, sockaddr*, socklen_t*), int socket) {
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    if (send_request(socket, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
    return SocketName::from_kernel(reinterpret_cast<const sockaddr*>(&name), bytes)
        .value_or(SocketName());
}

SocketName local_name(int socket) { return name_by(::getsockname, socket); }

// If nothing listens at a port of this host, the connecting socket may be given that very port: TCP
// then connects the socket to itself.
static bool is_connected_to_itself(int socket) {
    const SocketName own = local_name(socket);
    return !own.empty() && std::ranges::equal(own.bytes(), name_by(::getpeername, socket).bytes());
}

int socket_error(int socket) {
    int error = 0;
    socklen_t bytes = sizeof error;
    if (::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &bytes) != 0) return errno;
    return error == 0 && is_connected_to_itself(socket) ? ECONNREFUSED : error;
}

void use_plain_congestion_control(int socket) {
    const SocketName here = local_name(socket), there = name_by(::getpeername, socket);
    if (here.empty() || here.family() == AF_UNIX || here.host() != there.host()) return;
    constexpr char plain[] = "reno";
    (void)::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, plain, sizeof plain - 1);
}

}  // namespace weft::na::tcp
