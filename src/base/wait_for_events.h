// Sleeps on an epoll instance, or on several descriptors.
#pragma once

#include <poll.h>

#include <span>

#include <weft/time.h>

namespace weft::base {

// Sleeps until a descriptor of `epoll` is ready or a signal arrives, for `longest` at most. Without
// epoll_pwait2() (Linux before 5.11, seccomp profiles) `longest` is rounded up to milliseconds.
void wait_for_events(int epoll, Duration longest);

// The same for a few descriptors. Precise with every kernel.
void wait_for_any(std::span<pollfd> watched, Duration longest);

// Whether sleeps end within microseconds of `longest`; the first sleep determines it.
bool has_precise_waits();

}  // namespace weft::base
