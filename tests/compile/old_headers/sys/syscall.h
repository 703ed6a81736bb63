// As of glibc 2.28: without the system calls that Linux has had since 5.1.
#pragma once
#include_next <sys/syscall.h>
#undef SYS_pidfd_open
#undef SYS_openat2
#undef SYS_epoll_pwait2
#undef SYS_close_range
#undef SYS_process_madvise
