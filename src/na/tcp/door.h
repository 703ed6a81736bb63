// A listening socket of tcp or unix, which the endpoints of a runtime's contexts share.
#pragma once

#include "base/unique_fd.h"
#include "na/door.h"
#include "na/named_socket.h"
#include "na/socket_name.h"

namespace weft::na::tcp {

class TcpDoor final : public Door {
  public:
    // `scheme`: "tcp" or "unix". Errors: as Provider::open().
    static Result<std::shared_ptr<TcpDoor>> open(std::string_view scheme, const Address& at,
                                                 DoorParts parts);
    explicit TcpDoor(DoorParts parts) : Door(std::move(parts)) {}

    const SocketName& name() const { return name_; }  // Its address, with the port that it got.
    int socket() const { return port_ ? port_.get() : path_.get(); }
    // In a forked child: leaves the path to the parent.
    void abandon() { path_.abandon(); }

  private:
    Status listen_at_port(const Address& at);
    Status listen_at_path(const Address& at);

    base::UniqueFd port_;  // This or `path_`.
    NamedSocket path_;
    SocketName name_;
};

// The form of the addresses of a scheme, for error texts.
std::string address_form(std::string_view scheme);

}  // namespace weft::na::tcp
