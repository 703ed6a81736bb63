#include "na/verbs/device.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace weft::na::verbs {

static constexpr std::size_t completions_besides = 1024;
// All that a peer's message queue pair has in flight may be flushed at once. Incoming messages take
// one per buffer, transfers are few in all: `completions_besides`.
static constexpr std::size_t completions_per_peer = message_depth;
static constexpr std::size_t post_batch = 64;

Result<std::unique_ptr<Device>> Device::open(std::shared_ptr<SharedDevice> device,
                                             const DeviceOptions& options) {
    std::unique_ptr<Device> opened(new Device(std::move(device)));
    if (Status status = opened->open_all(options); !status.ok()) return status;
    return opened;
}

Device::~Device() { device_->remove_part(part_); }

Status Device::open_all(const DeviceOptions& options) {
    optimizations_ = options.optimizations;
    if (optimizations_.thread_domain) open_thread_domain();
    Status status = open_queues(options);
    if (status.ok()) status = open_messages(options);
    if (status.ok()) status = open_part(options);
    if (!status.ok()) return status;
    // The inline bytes that the device grants are known only by trying.
    inline_bytes_max_ = optimizations_.inline_sends ? inline_bytes_wanted : 0;
    while (!make_queue_pair(QueuePairRole::messages)) {
        if (inline_bytes_max_ == 0) return why_device_lacks("queue pairs", errno);
        inline_bytes_max_ /= 2;
    }
    return {};
}

// Without it the driver locks: some support none.
void Device::open_thread_domain() {
    ibv_td_init_attr attr{};
    ibv_thread_.reset(::ibv_alloc_td(device_->context(), &attr));
    if (!ibv_thread_) return;
    ibv_parent_domain_init_attr both{};
    both.pd = device_->domain();
    both.td = ibv_thread_.get();
    thread_domain_.reset(::ibv_alloc_parent_domain(device_->context(), &both));
    if (!thread_domain_) ibv_thread_.reset();
}

Status Device::open_queues(const DeviceOptions& options) {
    if (options.sleeps) {
        channel_ = open_completion_channel(device_->context());
        if (!channel_ || !set_nonblocking(channel_->fd))
            return why_device_lacks("completion channels", errno);
    }
    const std::size_t wanted =
        options.receive_slots + completions_besides + completions_per_peer * options.peers_max;
    const std::size_t depth = std::min(wanted, static_cast<std::size_t>(device_->limits().max_cqe));
    // A queue that overflows is lost, with everything on it.
    peers_max_ = (depth - std::min(depth, options.receive_slots + completions_besides)) /
                 completions_per_peer;
    if (peers_max_ == 0) return why_device_lacks("completions", ENOSPC);
    const auto interrupts = static_cast<unsigned>(device_->context()->num_comp_vectors);
    queue_.reset(make_completions(static_cast<std::uint32_t>(depth),
                                  options.context % std::max(interrupts, 1u)));
    if (!queue_) return why_device_lacks("completion queues", errno);

    ibv_srq_init_attr shared{};
    shared.attr.max_wr =
        std::min(options.receive_slots, static_cast<std::uint32_t>(device_->limits().max_srq_wr));
    shared.attr.max_sge = 1;
    shared_.reset(::ibv_create_srq(queue_domain(), &shared));
    if (!shared_) return why_device_lacks("shared receive queues", errno);
    receive_slots_ = std::min(options.receive_slots, shared.attr.max_wr);
    if (receive_slots_ == 0) return why_device_lacks("receive buffers", ENOSPC);
    return {};
}

// A parent domain promises the driver that one thread uses all of it.
ibv_cq* Device::make_completions(std::uint32_t depth, std::uint32_t interrupt) {
    if (thread_domain_) {
        ibv_cq_init_attr_ex attr{};
        attr.cqe = depth;
        attr.channel = channel_.get();
        attr.comp_vector = interrupt;
        attr.wc_flags = IBV_WC_STANDARD_FLAGS;
        attr.comp_mask = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
        attr.flags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED;
        attr.parent_domain = thread_domain_.get();
        if (ibv_cq_ex* made = ::ibv_create_cq_ex(device_->context(), &attr)) {
            return ::ibv_cq_ex_to_cq(made);
        }
    }
    return ::ibv_create_cq(device_->context(), static_cast<int>(depth), nullptr, channel_.get(),
                           static_cast<int>(interrupt));
}

Status Device::open_messages(const DeviceOptions& options) {
    if (!sends_.make(options.send_slots, options.message_bytes, optimizations_.huge_pages) ||
        !receives_.make(receive_slots_, options.message_bytes, optimizations_.huge_pages)) {
        return fail(Code::resource_exhausted, "this process has no memory for messages over verbs");
    }
    auto send_mr = register_memory(sends_.all(), 0);
    if (!send_mr) return std::move(send_mr).status();
    send_mr_ = *std::move(send_mr);
    auto receive_mr = register_memory(receives_.all(), IBV_ACCESS_LOCAL_WRITE);
    if (!receive_mr) return std::move(receive_mr).status();
    receive_mr_ = *std::move(receive_mr);
    return {};
}

// From here on the device's failures are reported to this part.
Status Device::open_part(const DeviceOptions& options) {
    part_.completions = queue_.get();
    part_.receives = shared_.get();
    if (options.contexts != 1) {
        part_.bell =
            base::UniqueFd::close_on_fork([] { return ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK); });
        if (!part_.bell) return why_device_lacks("descriptors", errno);
    }
    device_->add_part(part_);
    return {};
}

bool Device::is_behind(const ibv_context* other) const {
    return other && ::ibv_get_device_name(other->device) == name();
}

Result<Owned<ibv_qp>> Device::make_queue_pair(QueuePairRole role) {
    ibv_qp_init_attr attr{};
    attr.send_cq = queue_.get();
    attr.recv_cq = queue_.get();
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_sge = 1;
    attr.cap.max_send_wr = 1;
    if (role == QueuePairRole::messages) {
        attr.srq = shared_.get();
        attr.cap.max_send_wr = message_depth;
        attr.cap.max_inline_data = inline_bytes_max_;
    } else {
        attr.cap.max_recv_wr = 1;
        attr.cap.max_recv_sge = 1;
        if (role == QueuePairRole::initiator) attr.cap.max_send_wr = transfer_depth_per_queue_pair;
    }
    Owned<ibv_qp> qp(::ibv_create_qp(queue_domain(), &attr));
    if (!qp) return why_device_lacks("queue pairs", errno);
    return qp;
}

Result<Owned<ibv_mr>> Device::register_memory(Bytes memory, int access) {
    ++counters.registrations;
    return device_->register_memory(memory, access);
}

Result<SharedDevice::Region*> Device::expose(const Exposure& exposure) {
    const Result<SharedDevice::Exposed> exposed = device_->expose(exposure);
    if (!exposed) return exposed.status();
    if (exposed->is_new) ++counters.registrations;
    return exposed->region;
}

// The part of a queue pair's memory that a work request takes, on devices with a known layout
// (mlx5: 16 bytes of control, 16 of a remote address, 16 for a piece of memory or 4 and the bytes).
static std::uint64_t blocks_of(const ibv_send_wr& request) {
    std::uint64_t bytes = 16;
    if (request.opcode == IBV_WR_RDMA_READ || request.opcode == IBV_WR_RDMA_WRITE) bytes += 16;
    if (request.num_sge != 0) {
        bytes += (request.send_flags & IBV_SEND_INLINE) ? 4 + request.sg_list->length : 16;
    }
    return (bytes + 63) / 64;
}

void Device::count(const ibv_qp& qp, std::span<const ibv_send_wr> requests) {
    ++counters.doorbells;
    if (!thread_domain_) ++counters.locked;
    if (std::exchange(last_qp_, qp.qp_num) != qp.qp_num) ++counters.qp_changes;
    counters.work_requests += requests.size();
    std::uint64_t blocks = 0;
    for (const ibv_send_wr& request : requests) {
        blocks += blocks_of(request);
        if (request.send_flags & IBV_SEND_SIGNALED) ++counters.signalled;
        if (request.opcode == IBV_WR_RDMA_READ) {
            ++counters.payload_writes;
        } else if (request.send_flags & IBV_SEND_INLINE) {
            ++counters.inline_sends;
            counters.inline_bytes += request.sg_list->length;
        } else if (request.num_sge != 0) {
            ++counters.payload_reads;
            if (request.opcode != IBV_WR_RDMA_WRITE) {
                note_page(sends_, reinterpret_cast<const std::byte*>(request.sg_list->addr));
            }
        }
    }
    counters.request_blocks += blocks;
    if (requests.size() == 1) return;
    ++counters.lists;
    counters.listed_blocks += blocks;
}

int Device::post_sends(ibv_qp& qp, std::span<ibv_send_wr> requests) {
    const std::size_t at_once = optimizations_.request_lists ? requests.size() : 1;
    for (; !requests.empty(); requests = requests.subspan(at_once)) {
        const auto list = requests.first(at_once);
        for (std::size_t i = 0; i + 1 < list.size(); ++i) list[i].next = &list[i + 1];
        list.back().next = nullptr;
        count(qp, list);
        ibv_send_wr* refused = nullptr;
        if (const int error = ::ibv_post_send(&qp, list.data(), &refused)) return error;
    }
    return 0;
}

void Device::post_receives(std::span<const std::uint32_t> slots) {
    ibv_recv_wr requests[post_batch];
    ibv_sge pieces[post_batch];
    while (!slots.empty()) {
        const std::size_t count = std::min(post_batch, slots.size());
        for (std::size_t i = 0; i < count; ++i) {
            pieces[i] = {reinterpret_cast<std::uintptr_t>(receives_.at(slots[i])),
                         static_cast<std::uint32_t>(receives_.stride()), receive_mr_->lkey};
            requests[i] = {slots[i], i + 1 < count ? &requests[i + 1] : nullptr, &pieces[i], 1};
        }
        ibv_recv_wr* refused = nullptr;
        ++counters.receive_posts;
        // The queue has room for every slot.
        (void)::ibv_post_srq_recv(shared_.get(), requests, &refused);
        slots = slots.subspan(count);
    }
}

std::size_t Device::poll(std::span<ibv_wc> completions) {
    std::size_t count = 0;
    if (armed_completion_ && !completions.empty()) [[unlikely]] {
        completions[count++] = *armed_completion_;
        armed_completion_.reset();
    }
    const int got = ::ibv_poll_cq(queue_.get(), static_cast<int>(completions.size() - count),
                                  completions.data() + count);
    if (got > 0) count += static_cast<std::size_t>(got);
    return count;
}

bool Device::arm() {
    if (armed_completion_ || ::ibv_req_notify_cq(queue_.get(), 0) != 0) return false;
    // Completions that arrived before the request give no wake-up.
    ibv_wc completion;
    if (::ibv_poll_cq(queue_.get(), 1, &completion) != 1) return true;
    armed_completion_ = completion;
    return false;
}

void Device::consume_wakeups() {
    if (!channel_) return;
    unsigned count = 0;
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    while (::ibv_get_cq_event(channel_.get(), &queue, &unused) == 0) ++count;
    if (count != 0) ::ibv_ack_cq_events(queue_.get(), count);
}

}  // namespace weft::na::verbs
