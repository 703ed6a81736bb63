#include "na/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <system_error>

#include "base/assert.h"
#include "base/own_descriptor.h"
#include "na/hello.h"

namespace weft::na {

bool Acceptor::open(int epoll, int listener, std::uint64_t id, Refuse refuse) {
    WEFT_ASSERT(epoll >= 0 && listener >= 0 && refuse);
    epoll_ = epoll;
    listener_ = listener;
    id_ = id;
    refuse_ = refuse;
    spare_ = base::UniqueFd::close_on_fork([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    wanted.data.u64 = id_;
    return base::check_open(::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &wanted)) == 0;
}

base::UniqueFd Acceptor::accept_raw() const {
    return base::UniqueFd::close_on_fork(
        [&] { return ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

base::UniqueFd Acceptor::accept(TimePoint now, base::Log& log, const std::string& address) {
    if (!spare_)
        spare_ = base::UniqueFd::close_on_fork([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
    base::UniqueFd socket = accept_raw();
    if (socket) return socket;
    const int error = errno;
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return {};
    const bool no_descriptor = error == EMFILE || error == ENFILE;
    if (no_descriptor && refuse_one()) {
        note_refused(now, log, address);
    } else {
        if (!no_descriptor) note_failed(error, now, log, address);
        pause_until(now + retry_after);
    }
    return {};
}

void Acceptor::pause_until(TimePoint until) {
    watch(false);
    watch_at_ = until;
}

// False: another thread took the descriptor, or no connection waits any more.
bool Acceptor::refuse_one() {
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
    spare_ = base::UniqueFd::close_on_fork([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
    return refused;
}

// Rate limited: unidentified clients decide how often this happens.
void Acceptor::note_refused(TimePoint now, base::Log& log, const std::string& address) {
    ++refused_since_log_;
    if (now < next_log_) return;
    log.warning(address + " has no descriptor for more connections (ulimit -n), refused " +
                std::to_string(refused_since_log_));
    refused_since_log_ = 0;
    next_log_ = now + log_interval;
}

void Acceptor::note_failed(int error, TimePoint now, base::Log& log, const std::string& address) {
    if (now < next_log_) return;
    log.warning(address + " can't accept connections: " + std::generic_category().message(error));
    next_log_ = now + log_interval;
}

void Acceptor::serve(TimePoint now) {
    if (now < watch_at_) return;
    watch_at_ = watch(true) ? never : now + retry_after;
}

bool Acceptor::watch(bool wanted) const {
    WEFT_ASSERT(listener_ >= 0);
    epoll_event events{};
    if (wanted) events.events = EPOLLIN;
    events.data.u64 = id_;
    return base::check_open(::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &events)) == 0;
}

}  // namespace weft::na
