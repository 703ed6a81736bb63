// Numbers of system calls that the headers of glibc 2.28 and Linux 4.18 (RHEL 8) do not have yet.
// Calls added since Linux 5.1 have the same number on every architecture but alpha.
#pragma once

#include <sys/syscall.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_epoll_pwait2
#define SYS_epoll_pwait2 441
#endif
