// A process with the limits of an ordinary user, also where the tests run as root.
#pragma once

#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace weft::test {

// Drops every capability of the calling thread and bounds its process's descriptors. Call it in a
// child, before it has threads.
inline bool limit_as_ordinary_user(rlim_t descriptors = 1024) {
    const rlimit files{descriptors, descriptors};
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    const __user_cap_data_struct none[2] = {};
    return ::setrlimit(RLIMIT_NOFILE, &files) == 0 && ::syscall(SYS_capset, &head, none) == 0;
}

}  // namespace weft::test
