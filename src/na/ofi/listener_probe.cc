#include "na/ofi/listener_probe.h"

#include <poll.h>

#include <cerrno>

namespace weft::na::ofi {

void ListenerProbe::start(const SocketName& to) {
    started_ = true;
    answered_ = false;
    fd_ = base::UniqueFd::close_on_fork(
        [&] { return ::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0); });
    if (!fd_) return;
    if (::connect(fd_.get(), to.get(), static_cast<socklen_t>(to.size())) == 0) {
        answered_ = true;
        fd_.reset();
    } else if (errno != EINPROGRESS) {
        error_ = errno;
        fd_.reset();
    }
}

int ListenerProbe::why_refused() {
    if (!fd_) return error_;
    pollfd entry{fd_.get(), POLLOUT, 0};
    if (::poll(&entry, 1, 0) != 1) return 0;
    socklen_t bytes = sizeof error_;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error_, &bytes) != 0) error_ = errno;
    answered_ = error_ == 0;
    fd_.reset();
    return error_;
}

}  // namespace weft::na::ofi
