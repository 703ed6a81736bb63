// The descriptors of this process that are no plain files: sockets, epoll sets, events, memory,
// processes, signals, watches; and locks.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

namespace weft::test {

inline std::set<int> special_descriptors() {
    std::set<int> found;
    for (int fd = 0; fd < 1024; ++fd) {
        char name[256];
        const std::string at = "/proc/self/fd/" + std::to_string(fd);
        const ssize_t bytes = ::readlink(at.c_str(), name, sizeof name);
        if (bytes <= 0) continue;
        const std::string_view what(name, static_cast<std::size_t>(bytes));
        for (const char* kind : {"socket:", "anon_inode:", "/memfd:", ".lock"}) {
            if (what.find(kind) != std::string_view::npos) found.insert(fd);
        }
    }
    return found;
}

// How many there are now that were not `before`.
inline int descriptors_besides(const std::set<int>& before) {
    const std::set<int> now = special_descriptors();
    return static_cast<int>(
        std::count_if(now.begin(), now.end(), [&](int fd) { return before.count(fd) == 0; }));
}

}  // namespace weft::test
