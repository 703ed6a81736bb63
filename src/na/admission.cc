#include "na/admission.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "base/own_descriptor.h"
#include "na/hello.h"

namespace weft::na {

bool Admission::open(int epoll, int listener, std::uint64_t id, Refuse refuse) {
    epoll_ = epoll;
    listener_ = listener;
    id_ = id;
    refuse_ = refuse;
    spare_ =
        base::UniqueFd::closed_in_children([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.u64 = id_;
    return base::check_open(::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &wanted)) == 0;
}

base::UniqueFd Admission::accept_raw() const {
    return base::UniqueFd::closed_in_children(
        [&] { return ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

base::UniqueFd Admission::accept(TimePoint now, base::Log& log, const std::string& address) {
    if (!spare_)
        spare_ =
            base::UniqueFd::closed_in_children([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
    base::UniqueFd socket = accept_raw();
    if (socket) return socket;
    const int error = errno;
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return {};
    const bool no_descriptor = error == EMFILE || error == ENFILE;
    if (no_descriptor && refuse_one()) {
        note_refused(now, log, address);
    } else {
        if (!no_descriptor) note_failed(error, now, log, address);
        rest_until(now + rest);
    }
    return {};
}

void Admission::rest_until(TimePoint until) {
    watch(false);
    watch_at_ = until;
}

// False: another thread took the descriptor, or nobody waits any more.
bool Admission::refuse_one() {
    if (!spare_) return false;
    spare_.reset();
    base::UniqueFd socket = accept_raw();
    const bool refused = bool(socket);
    if (refused) {
        refuse_(socket.get(), fail(busy_code,
                                   "no file descriptor left for one more connection "
                                   "(ulimit -n of the server's process)"));
    }
    socket.reset();
    spare_ =
        base::UniqueFd::closed_in_children([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
    return refused;
}

// Strangers decide how often.
void Admission::note_refused(TimePoint now, base::Log& log, const std::string& address) {
    ++refused_;
    if (now < tell_at_) return;
    log.warning(address + " has no descriptor for more connections (ulimit -n), refused " +
                std::to_string(refused_));
    refused_ = 0;
    tell_at_ = now + tell_every;
}

void Admission::note_failed(int error, TimePoint now, base::Log& log, const std::string& address) {
    if (now < tell_at_) return;
    log.warning(address + " can't accept connections: " + std::generic_category().message(error));
    tell_at_ = now + tell_every;
}

void Admission::serve(TimePoint now) {
    if (now < watch_at_) return;
    watch_at_ = watch(true) ? never : now + rest;
}

bool Admission::watch(bool wanted) const {
    epoll_event events{};
    if (wanted) events.events = EPOLLIN;
    events.data.u64 = id_;
    return base::check_open(::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &events)) == 0;
}

}  // namespace weft::na
