// Descriptors of the runtime's own. A program that closes them, as one does that closes all above 2
// to go into the background, leaves a runtime that neither sleeps nor is woken: the first system
// call that finds one closed writes a sentence and aborts.
#pragma once

#include <poll.h>

#include <cerrno>
#include <span>

namespace weft::base {

// Aborts when `error` is what a closed descriptor gives, or one whose number is another file's.
void refuse_closed(int error);

// `result` of a system call that fails so for no other reason; errno stays.
template <class Result>
Result check_open(Result result) {
    if (result < 0) [[unlikely]]
        refuse_closed(errno);
    return result;
}

// The same for what poll() found.
inline void check_polled(std::span<const pollfd> polled) {
    for (const pollfd& one : polled) {
        if ((one.revents & POLLNVAL) != 0) [[unlikely]]
            refuse_closed(EBADF);
    }
}

}  // namespace weft::base
