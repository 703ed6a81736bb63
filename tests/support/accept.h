// Accepts connections as the tcp transport does.
#pragma once

#include <sys/socket.h>

#include "base/unique_fd.h"
#include "na/tcp/socket.h"

namespace weft::test {

inline base::UniqueFd accept_one(int listener) {
    base::UniqueFd socket(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket) na::tcp::set_accepted_options(socket.get());
    return socket;
}

}  // namespace weft::test
