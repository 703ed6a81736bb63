// Owners of rdma-core's objects, and texts for its errors.
#pragma once

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <weft/status.h>

namespace weft::na::verbs {

// An object that can't be closed is a leak until the process ends: there is no remedy.
struct Closer {
    void operator()(ibv_context* object) const;
    void operator()(ibv_pd* object) const { (void)::ibv_dealloc_pd(object); }
    void operator()(ibv_td* object) const { (void)::ibv_dealloc_td(object); }
    void operator()(ibv_mr* object) const { (void)::ibv_dereg_mr(object); }
    void operator()(ibv_cq* object) const { (void)::ibv_destroy_cq(object); }
    void operator()(ibv_srq* object) const { (void)::ibv_destroy_srq(object); }
    void operator()(ibv_qp* object) const { (void)::ibv_destroy_qp(object); }
    void operator()(ibv_comp_channel* object) const;
    void operator()(rdma_event_channel* object) const;
    void operator()(rdma_cm_id* object) const { (void)::rdma_destroy_id(object); }
};
template <class T>
using Owned = std::unique_ptr<T, Closer>;

// Their descriptors are closed in forked children: a copy would keep a device's objects, or a port,
// after the parent's end. nullptr: errno.
Owned<ibv_context> open_context(ibv_device* device);
Owned<ibv_comp_channel> open_completion_channel(ibv_context* context);
Owned<rdma_event_channel> open_event_channel();

std::string describe(int error);                 // "Connection refused (111)".
std::string describe_status(ibv_wc_status why);  // "remote access error (10)".

// Why memory could not be registered, with the remedy.
std::string why_not_registered(std::size_t bytes, int error);

// RESOURCE_EXHAUSTED: the device has no more of `what`.
Status why_device_lacks(std::string_view what, int error);

// The names of this machine's devices.
std::vector<std::string> list_devices();

// Makes a descriptor that rdma-core opened non-blocking. False: errno.
bool set_nonblocking(int fd);

}  // namespace weft::na::verbs
