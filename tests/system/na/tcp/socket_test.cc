// Kernel settings of the sockets of tcp.
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <string>

#include "na/tcp/socket.h"
#include "support/accept.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::na;

namespace {

std::string congestion_control_of(int socket) {
    char name[16] = {};
    socklen_t bytes = sizeof name;
    REQUIRE(::getsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name, &bytes) == 0);
    return name;
}

// False: this kernel does not have it, or forbids it to this user.
bool set_congestion_control(int socket, const std::string& name) {
    return ::setsockopt(socket, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                        static_cast<socklen_t>(name.size())) == 0;
}

}  // namespace

TEST_CASE("tcp: a connection within a host is not paced") {
    const char* host = GENERATE("127.0.0.1", "::1");
    const auto any_port = SocketName::from_numeric(host, 0);
    REQUIRE(any_port);
    const Result<base::UniqueFd> listener = tcp::listen_at(*any_port, "tcp://here");
    if (!listener && std::string(host) == "::1") return;  // This machine has no IPv6.
    REQUIRE(listener.ok());
    (void)set_congestion_control(listener->get(), "cubic");  // Accepted sockets inherit it.
    const Result<base::UniqueFd> client = tcp::start_connecting(tcp::local_name(listener->get()));
    REQUIRE(client.ok());
    pollfd connected{client->get(), POLLOUT, 0};
    REQUIRE(::poll(&connected, 1, 5000) == 1);
    const base::UniqueFd server = test::accept_one(listener->get());
    REQUIRE(server);
    CHECK(congestion_control_of(server.get()) == "reno");
    // Whatever the machine's default is.
    for (const std::string other : {"cubic", "bbr"}) {
        if (!set_congestion_control(client->get(), other)) continue;
        REQUIRE(congestion_control_of(client->get()) == other);
        tcp::use_plain_congestion_control(client->get());
        CHECK(congestion_control_of(client->get()) == "reno");
    }
}

TEST_CASE("tcp: a socket that the kernel connects to itself is reported as ECONNREFUSED") {
    const base::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto any_port = SocketName::from_numeric("127.0.0.1", 0);
    REQUIRE(::bind(socket.get(), any_port->get(), static_cast<socklen_t>(any_port->size())) == 0);
    const SocketName own = tcp::local_name(socket.get());
    REQUIRE(::connect(socket.get(), own.get(), static_cast<socklen_t>(own.size())) == 0);
    CHECK(tcp::socket_error(socket.get()) == ECONNREFUSED);
    // With a listener the connect succeeds.
    const Result<base::UniqueFd> listener = tcp::listen_at(*any_port, "tcp://here");
    REQUIRE(listener.ok());
    const Result<base::UniqueFd> client = tcp::start_connecting(tcp::local_name(listener->get()));
    REQUIRE(client.ok());
    pollfd connected{client->get(), POLLOUT, 0};
    REQUIRE(::poll(&connected, 1, 5000) == 1);
    CHECK(tcp::socket_error(client->get()) == 0);
}
