#include "na/tcp/door.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "na/resolution.h"
#include "na/tcp/socket.h"

namespace weft::na::tcp {

std::string address_form(std::string_view scheme) {
    return scheme == "unix" ? "unix:///path" : "tcp://host:port";
}

Result<std::shared_ptr<TcpDoor>> TcpDoor::open(std::string_view scheme, const Address& at,
                                               DoorParts parts) {
    if (at.scheme != scheme) {
        return fail(Code::invalid_argument, std::string(scheme) + " can't listen at " + at.uri() +
                                                "; use " + address_form(scheme));
    }
    auto door = std::make_shared<TcpDoor>(std::move(parts));
    Status status = scheme == "unix" ? door->listen_at_path(at) : door->listen_at_port(at);
    if (!status.ok()) return status;
    return door;
}

Status TcpDoor::listen_at_port(const Address& at) {
    const Result<SocketName> name = resolve_blocking(at);
    if (!name) return name.status();
    Result<base::UniqueFd> listener = listen_at(*name, at.uri());
    if (!listener) return std::move(listener).status();
    port_ = *std::move(listener);
    name_ = local_name(port_.get());
    if (!name_.empty()) return {};
    return fail(Code::resource_exhausted, at.uri() + ": " + std::strerror(errno));
}

Status TcpDoor::listen_at_path(const Address& at) {
    Result<NamedSocket> socket =
        NamedSocket::listen(at.name, at.name + ".lock", SOCK_STREAM, at.uri());
    if (!socket) return std::move(socket).status();
    path_ = *std::move(socket);
    name_ = *SocketName::from_path(at.name);
    return {};
}

}  // namespace weft::na::tcp
