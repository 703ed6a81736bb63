#include "na/verbs/rdma.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cstring>

namespace weft::na::verbs {

std::string describe(int error) {
    const int positive = error < 0 ? -error : error;
    return std::string(std::strerror(positive)) + " (" + std::to_string(positive) + ")";
}

std::string describe_status(ibv_wc_status why) {
    return std::string(::ibv_wc_status_str(why)) + " (" + std::to_string(static_cast<int>(why)) +
           ")";
}

std::string why_not_registered(std::size_t bytes, int error) {
    std::string text =
        "the RDMA device can't register " + std::to_string(bytes) + " bytes: " + describe(error);
    rlimit limit{};
    if (::getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        text += "; this process may lock " + std::to_string(limit.rlim_cur) +
                " bytes in memory: raise that with `ulimit -l unlimited`, or LimitMEMLOCK=infinity "
                "of its service";
    }
    return text;
}

std::vector<std::string> list_devices() {
    int count = 0;
    ibv_device** devices = ::ibv_get_device_list(&count);
    std::vector<std::string> names;
    names.reserve(static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) names.emplace_back(::ibv_get_device_name(devices[i]));
    if (devices) ::ibv_free_device_list(devices);
    return names;
}

bool set_nonblocking(int fd) {
    const int flags = ::fcntl(fd, F_GETFL);
    return flags >= 0 && ::fcntl(fd, F_SETFL, flags | O_NONBLOCK) == 0;
}

}  // namespace weft::na::verbs
