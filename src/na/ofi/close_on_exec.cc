// libfabric opens its sockets without FD_CLOEXEC: a program that this process executes would keep
// the port taken, and the connections open.
#include <dirent.h>
#include <fcntl.h>
#include <sys/socket.h>

#include <cstdlib>

#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

// The local or remote name of a descriptor that an executed program would inherit.
static SocketName name_by(int (*ask)(int, sockaddr*, socklen_t*), int fd) {
    sockaddr_storage name{};
    socklen_t bytes = sizeof name;
    if (ask(fd, reinterpret_cast<sockaddr*>(&name), &bytes) != 0) return {};
    return SocketName::from_kernel(reinterpret_cast<sockaddr*>(&name), bytes)
        .value_or(SocketName());
}

// Schedules a scan of all descriptors soon; such scans take a fiftieth of the time at most.
void OfiEndpoint::schedule_close_on_exec() {
    close_on_exec_.at =
        std::min(close_on_exec_.at, std::max(clock_.now, close_on_exec_.not_before));
    schedule_.note(close_on_exec_.at);
}

// libfabric's sockets are recognised by their addresses: they listen at this endpoint's port, were
// accepted there, or lead to an address that this endpoint connects to.
void OfiEndpoint::set_close_on_exec() {
    constexpr Duration pause_per_descriptor = 50us;
    close_on_exec_.at = never;
    close_on_exec_.not_before = clock_.now;
    DIR* const all = fabric_ ? ::opendir("/proc/self/fd") : nullptr;
    if (!all) return;
    while (const dirent* entry = ::readdir(all)) {
        close_on_exec_.not_before += pause_per_descriptor;
        const int fd = std::atoi(entry->d_name);
        const int flags = fd > 2 ? ::fcntl(fd, F_GETFD) : -1;
        if (flags < 0 || (flags & FD_CLOEXEC) != 0) continue;
        const SocketName here = name_by(::getsockname, fd);
        if (here.family() != fabric_->name().family()) continue;
        if (here.port() == fabric_->name().port() || has_av_entry(name_by(::getpeername, fd))) {
            (void)::fcntl(fd, F_SETFD, flags | FD_CLOEXEC);
        }
    }
    ::closedir(all);
}

}  // namespace weft::na::ofi
