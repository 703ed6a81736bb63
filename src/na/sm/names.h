// The files of sm names: one socket and one lock per name, in a directory that only this user can
// enter.
#pragma once

#include <string>
#include <string_view>

#include <weft/result.h>

#include "na/named_socket.h"

namespace weft::na::sm {

// $XDG_RUNTIME_DIR/weft if only this user can write XDG_RUNTIME_DIR, else /tmp/weft-<uid>; made
// when missing, mode 0700. Errors: PERMISSION_DENIED (of another user, or open to others),
// UNAVAILABLE.
Result<std::string> names_directory();

// Errors: INVALID_ARGUMENT (path too long for a socket).
Result<sockaddr_un> socket_address(const std::string& directory, std::string_view name);

// A name that this process serves during the object's lifetime.
class Listening {
  public:
    // Errors: ALREADY_EXISTS (a live server has the name), as above, UNAVAILABLE.
    static Result<Listening> open(std::string_view name);

    int socket() const { return socket_.get(); }
    const std::string& name() const { return name_; }
    explicit operator bool() const { return bool(socket_); }
    void abandon() { socket_.abandon(); }

  private:
    NamedSocket socket_;
    std::string name_;
};

}  // namespace weft::na::sm
