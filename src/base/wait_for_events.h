// A sleep on an epoll instance.
#pragma once

#include <weft/time.h>

namespace weft::base {

// Until one of its descriptors is ready, for `longest` at most, or less after a signal. Where the
// system has no epoll_pwait2() (Linux before 5.11, seccomp profiles) in milliseconds, rounded up.
void wait_for_events(int epoll, Duration longest);

// Whether sleeps end within microseconds of `longest`; found out by the first one.
bool waits_precisely();

}  // namespace weft::base
