#include "na/acceptor.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/assert.h"
#include "base/own_descriptor.h"
#include "na/hello.h"

namespace weft::na {

bool Acceptor::open(int epoll, int listener, std::uint64_t id, Refuse refuse, AcceptDuty duty) {
    WEFT_ASSERT(epoll >= 0 && listener >= 0 && refuse);
    epoll_ = epoll;
    listener_ = listener;
    id_ = id;
    refuse_ = refuse;
    duty_ = duty;
    is_watched_ = duty_.is_on();
    serve_at_ = duty_.next_deadline();
    keep_spare();
    epoll_event wanted{};
    if (is_watched_) wanted.events = EPOLLIN;
    wanted.data.u64 = id_;
    return base::check_open(::epoll_ctl(epoll_, EPOLL_CTL_ADD, listener_, &wanted)) == 0;
}

void Acceptor::keep_spare() {
    if (!spare_)
        spare_ = base::UniqueFd::close_on_fork([&] { return ::fcntl(epoll_, F_DUPFD_CLOEXEC, 0); });
}

base::UniqueFd Acceptor::accept_raw() const {
    return base::UniqueFd::close_on_fork(
        [&] { return ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK); });
}

base::UniqueFd Acceptor::accept(TimePoint now, base::Log& log, const std::string& address) {
    keep_spare();
    base::UniqueFd socket = accept_raw();
    if (socket) return socket;
    const int error = errno;
    if (error == EAGAIN || error == EINTR || error == ECONNABORTED) return {};
    const bool no_descriptor = error == EMFILE || error == ENFILE;
    if (no_descriptor && refuse_one()) {
        note_refused(now, log, address);
    } else {
        if (!no_descriptor || !spare_) note_failed(error, now, log, address);
        pause_until(now + retry_after);
    }
    return {};
}

void Acceptor::pause_until(TimePoint until) {
    watch(false);
    paused_until_ = until;
    serve_at_ = std::min(serve_at_, until);
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
    keep_spare();
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
    if (now < serve_at_) return;
    duty_.serve(now);
    if (now >= paused_until_) paused_until_ = TimePoint::min();
    const bool is_paused = paused_until_ != TimePoint::min();
    const bool wanted = duty_.is_on() && !is_paused;
    if (wanted != is_watched_ && !watch(wanted)) {
        serve_at_ = now + retry_after;
    } else {
        serve_at_ = std::min(duty_.next_deadline(), is_paused ? paused_until_ : never);
    }
}

bool Acceptor::watch(bool wanted) {
    WEFT_ASSERT(listener_ >= 0);
    epoll_event events{};
    if (wanted) events.events = EPOLLIN;
    events.data.u64 = id_;
    const bool is_done =
        base::check_open(::epoll_ctl(epoll_, EPOLL_CTL_MOD, listener_, &events)) == 0;
    if (is_done) is_watched_ = wanted;
    return is_done;
}

}  // namespace weft::na
