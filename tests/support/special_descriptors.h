// The descriptors of this process that are not plain files: sockets, epoll sets, events, memory,
// processes, signals, watches; and locks.
#pragma once

#include <unistd.h>

#include <bitset>
#include <cstdio>
#include <string_view>

namespace weft::test {

using Descriptors = std::bitset<1024>;

// Allocates nothing, because a child forked amid threads must not.
inline Descriptors special_descriptors() {
    Descriptors found;
    for (std::size_t fd = 0; fd < found.size(); ++fd) {
        char at[64], name[256];
        (void)std::snprintf(at, sizeof at, "/proc/self/fd/%zu", fd);
        const ssize_t bytes = ::readlink(at, name, sizeof name);
        if (bytes <= 0) continue;
        const std::string_view what(name, static_cast<std::size_t>(bytes));
        for (const char* kind : {"socket:", "anon_inode:", "/memfd:", ".lock"}) {
            if (what.find(kind) != std::string_view::npos) found.set(fd);
        }
    }
    return found;
}

// The number of descriptors that are not in `before`.
inline int descriptors_besides(const Descriptors& before) {
    return static_cast<int>((special_descriptors() & ~before).count());
}

}  // namespace weft::test
