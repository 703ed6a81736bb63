// The runtime's own descriptors. A daemon that closes all descriptors above 2 closes these, too,
// and the runtime can then neither sleep nor be woken. So the first system call that fails on a
// closed descriptor writes a message and aborts.
#pragma once

#include <poll.h>

#include <cerrno>
#include <span>

namespace weft::base {

// Aborts when `error` is that of a closed descriptor, or of a number that another file has taken.
void abort_if_closed(int error);

// `result`: of a system call that has no other reason for these errors. Keeps errno.
template <class Result>
Result check_open(Result result) {
    if (result < 0) [[unlikely]]
        abort_if_closed(errno);
    return result;
}

// The same for the results of poll().
inline void check_polled(std::span<const pollfd> polled) {
    for (const pollfd& one : polled) {
        if ((one.revents & POLLNVAL) != 0) [[unlikely]]
            abort_if_closed(EBADF);
    }
}

}  // namespace weft::base
