// libfabric opens its sockets without FD_CLOEXEC: a program that this process executes would keep
// the port taken, and the connections open.
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <cstdlib>

#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

// Of a descriptor that a program would inherit.
static SocketName name_by(int (*ask)(int, sockaddr*, socklen_t*), int fd) {
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    if (ask(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
    return SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes)
        .value_or(SocketName());
}

// Soon, and so that looking at all descriptors takes a fiftieth of the time at most.
void OfiEndpoint::mark_sockets_later() {
    marking_at_ = std::min(marking_at_, std::max(now_, unmarked_until_));
    attention_at_ = std::min(attention_at_, marking_at_);
}

// Those of ours are told by their addresses: what listens at our port, was accepted there, or leads
// to a peer that we connect to.
void OfiEndpoint::mark_sockets() {
    constexpr Duration pause_per_descriptor = 50us;
    marking_at_ = never;
    unmarked_until_ = now_;
    DIR* const all = fabric_ ? ::opendir("/proc/self/fd") : nullptr;
    if (!all) return;
    while (const dirent* entry = ::readdir(all)) {
        unmarked_until_ += pause_per_descriptor;
        const int fd = std::atoi(entry->d_name);
        const int flags = fd > 2 ? ::fcntl(fd, F_GETFD) : -1;
        if (flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
        const SocketName here = name_by(::getsockname, fd);
        if (here.family() != fabric_->name().family()) continue;
        if (here.port() == fabric_->name().port() || has_link(name_by(::getpeername, fd))) {
            (void)::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
        }
    }
    ::closedir(all);
}

}  // namespace weft::na::ofi
