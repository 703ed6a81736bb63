#include "na/verbs/shared_device.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/assert.h"

namespace weft::na::verbs {

static constexpr std::uint32_t reads_wanted = 16;

static int access_flags(Access access) {
    return (allows(access, Access::read) ? IBV_ACCESS_REMOTE_READ : 0) |
           (allows(access, Access::write) ? IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_LOCAL_WRITE : 0);
}

Result<std::shared_ptr<SharedDevice>> SharedDevice::open(ibv_device* device) {
    std::shared_ptr<SharedDevice> opened(new SharedDevice);
    if (Status status = opened->open_all(device); !status.ok()) return status;
    return opened;
}

Status SharedDevice::open_all(ibv_device* device) {
    const std::string name = ::ibv_get_device_name(device);
    context_ = open_context(device);
    if (!context_) {
        return fail(Code::unavailable,
                    "can't open the RDMA device " + name + ": " + describe(errno));
    }
    if (device->transport_type == IBV_TRANSPORT_IWARP) {
        return fail(Code::unimplemented, "the RDMA device " + name +
                                             " speaks iWARP, which sets up connections another "
                                             "way; weft runs on InfiniBand and RoCE");
    }
    if (const int error = ::ibv_query_device(context_.get(), &limits_)) {
        return fail(Code::unavailable,
                    "the RDMA device " + name + " does not answer: " + describe(error));
    }
    // The port that is up, if there is one, else the last.
    ibv_port_attr port{};
    for (std::uint8_t number = 1; number <= limits_.phys_port_cnt; ++number) {
        if (const int error = ::ibv_query_port(context_.get(), number, &port)) {
            return fail(Code::unavailable, "port " + std::to_string(number) +
                                               " of the RDMA device " + name +
                                               " does not answer: " + describe(error));
        }
        if (port.state == IBV_PORT_ACTIVE) break;
    }
    reads_max_ =
        std::clamp<std::uint32_t>(std::min(static_cast<std::uint32_t>(limits_.max_qp_rd_atom),
                                           static_cast<std::uint32_t>(limits_.max_qp_init_rd_atom)),
                                  1, reads_wanted);
    transfer_bytes_max_ = port.max_msg_sz;
    if (!set_nonblocking(context_->async_fd)) return why_device_lacks("descriptors", errno);
    domain_.reset(::ibv_alloc_pd(context_.get()));
    if (!domain_) return why_device_lacks("protection domains", errno);
    return {};
}

Result<Owned<ibv_mr>> SharedDevice::register_memory(Bytes memory, int access) const {
    Owned<ibv_mr> region(
        ::ibv_reg_mr(domain_.get(), memory.data(), memory.size(), static_cast<unsigned>(access)));
    if (!region) {
        return fail(Code::resource_exhausted, why_not_registered(memory.size(), errno));
    }
    return region;
}

// ---- exposed regions ---------------------------------------------------------------------------

// A registration per exposure: exactly this range and these rights, and its end is the fence. The
// kernel takes long for much memory: no mutex is held meanwhile, and the registration of an
// endpoint that comes second is dropped.
Result<SharedDevice::Exposed> SharedDevice::expose(const Exposure& exposure) {
    const RegionKey key{exposure.region,        exposure.generation,    exposure.key,
                        exposure.memory.data(), exposure.memory.size(), exposure.access};
    {
        const base::MutexLock lock(mutex_);
        if (Region* const known = find_region(key)) return Exposed{known, false};
    }
    auto memory = register_memory(exposure.memory, access_flags(exposure.access));
    if (!memory) return std::move(memory).status();
    const base::MutexLock lock(mutex_);
    if (Region* const known = find_region(key)) return Exposed{known, false};
    const auto added = regions_.emplace(key, Region{*std::move(memory), 1});
    added->second.key = &added->first;
    return Exposed{&added->second, true};
}

SharedDevice::Region* SharedDevice::find_region(const RegionKey& key) {
    const auto found = regions_.find(key);
    if (found == regions_.end()) return nullptr;
    ++found->second.uses;
    return &found->second;
}

int SharedDevice::end_region(Region& region) {
    decltype(regions_)::node_type ended;
    {
        const base::MutexLock lock(mutex_);
        WEFT_ASSERT(region.uses != 0);
        if (region.uses > 1) {
            --region.uses;
            return 0;
        }
        auto [at, end] = regions_.equal_range(*region.key);
        while (at != end && &at->second != &region) ++at;
        WEFT_ASSERT(at != end);
        ended = regions_.extract(at);
    }
    const int error = ::ibv_dereg_mr(region.memory.get());
    if (error == 0) {
        (void)region.memory.release();
        return 0;
    }
    const base::MutexLock lock(mutex_);
    regions_.insert(std::move(ended));
    return error;
}

// ---- failures ----------------------------------------------------------------------------------

void SharedDevice::add_part(Part& part) {
    const base::MutexLock lock(mutex_);
    parts_.push_back(&part);
}

void SharedDevice::remove_part(const Part& part) {
    const base::MutexLock lock(mutex_);
    std::erase(parts_, &part);
}

void SharedDevice::report(const AsyncEvent& failure) {
    WEFT_ASSERT(failure.affects == AsyncEvent::Affects::device && !failure.text.empty());
    const base::MutexLock lock(mutex_);
    for (Part* part : parts_) {
        const void* const queue = failure.queue;
        if (queue && queue != part->completions && queue != part->receives) continue;
        if (part->failure.empty()) part->failure = failure.text;
        const std::uint64_t one = 1;
        if (part->bell) (void)!::write(part->bell.get(), &one, sizeof one);
    }
}

std::optional<std::string> SharedDevice::take_failure(Part& part) {
    std::uint64_t rings = 0;
    if (part.bell) (void)!::read(part.bell.get(), &rings, sizeof rings);
    const base::MutexLock lock(mutex_);
    if (part.failure.empty()) return std::nullopt;
    return std::exchange(part.failure, {});
}

std::optional<AsyncEvent> SharedDevice::next_async_event() {
    ibv_async_event event{};
    if (::ibv_get_async_event(context_.get(), &event) != 0) return std::nullopt;
    AsyncEvent found;
    found.text = name() + ": " + ::ibv_event_type_str(event.event_type);
    switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
        case IBV_EVENT_COMM_EST: found.affects = AsyncEvent::Affects::queue_pair; break;
        case IBV_EVENT_CQ_ERR:
            found.affects = AsyncEvent::Affects::device;
            found.queue = event.element.cq;
            break;
        case IBV_EVENT_SRQ_ERR:
            found.affects = AsyncEvent::Affects::device;
            found.queue = event.element.srq;
            break;
        case IBV_EVENT_DEVICE_FATAL: found.affects = AsyncEvent::Affects::device; break;
        default: break;
    }
    // A queue is not destroyed before its events are acknowledged.
    if (found.affects == AsyncEvent::Affects::device) report(found);
    ::ibv_ack_async_event(&event);
    return found;
}

// ---- for several contexts ----------------------------------------------------------------------

Result<std::shared_ptr<SharedDevice>> SharedDevices::open(ibv_device* device,
                                                          const EndpointParts& parts) {
    if (parts.contexts == 1) return SharedDevice::open(device);
    const base::MutexLock lock(mutex_);
    std::erase_if(known_, [](const Known& one) { return one.device.expired(); });
    for (const Known& one : known_) {
        std::shared_ptr<SharedDevice> shared = one.device.lock();
        const bool is_it = shared && one.runtime == parts.incarnation &&
                           shared->name() == ::ibv_get_device_name(device);
        if (is_it) return shared;
    }
    Result<std::shared_ptr<SharedDevice>> opened = SharedDevice::open(device);
    if (opened) known_.push_back({parts.incarnation, *opened});
    return opened;
}

}  // namespace weft::na::verbs
