// The number of open descriptors of this process.
#pragma once

#include <fcntl.h>

namespace weft::test {

inline int open_files() {
    int count = 0;
    for (int fd = 0; fd < 4096; ++fd) count += ::fcntl(fd, F_GETFD) >= 0;
    return count;
}

}  // namespace weft::test
