#include "na/verbs/rdma.h"

#include <fcntl.h>
#include <sys/resource.h>

#include <cstring>

#include "base/fork.h"

namespace weft::na::verbs {

Owned<ibv_context> open_context(ibv_device* device) {
    const base::ForkBlocker held;
    Owned<ibv_context> context(::ibv_open_device(device));
    if (context) {
        base::CloseOnFork::add(context->cmd_fd, held);
        base::CloseOnFork::add(context->async_fd, held);
    }
    return context;
}

Owned<ibv_comp_channel> open_completion_channel(ibv_context* context) {
    const base::ForkBlocker held;
    Owned<ibv_comp_channel> channel(::ibv_create_comp_channel(context));
    if (channel) base::CloseOnFork::add(channel->fd, held);
    return channel;
}

Owned<rdma_event_channel> open_event_channel() {
    const base::ForkBlocker held;
    Owned<rdma_event_channel> channel(::rdma_create_event_channel());
    if (channel) base::CloseOnFork::add(channel->fd, held);
    return channel;
}

void Closer::operator()(ibv_context* object) const {
    const base::ForkBlocker held;
    base::CloseOnFork::remove(object->cmd_fd, held);
    base::CloseOnFork::remove(object->async_fd, held);
    (void)::ibv_close_device(object);
}

void Closer::operator()(ibv_comp_channel* object) const {
    const base::ForkBlocker held;
    base::CloseOnFork::remove(object->fd, held);
    (void)::ibv_destroy_comp_channel(object);
}

void Closer::operator()(rdma_event_channel* object) const {
    const base::ForkBlocker held;
    base::CloseOnFork::remove(object->fd, held);
    ::rdma_destroy_event_channel(object);
}

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

Status why_device_lacks(std::string_view what, int error) {
    return fail(Code::resource_exhausted,
                "the RDMA device has no " + std::string(what) + " left: " + describe(error));
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
