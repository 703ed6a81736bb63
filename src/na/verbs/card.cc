#include "na/verbs/card.h"

#include <algorithm>
#include <cerrno>

namespace weft::na::verbs {

// A message of a few frames goes inside its work request: the card need not fetch it.
static constexpr std::uint32_t inline_bytes_wanted = 220;
static constexpr std::uint32_t reads_wanted = 16;
static constexpr std::size_t completions_besides = 1024;
static constexpr std::size_t post_batch = 64;

static Status no_room(std::string_view what, int error) {
    return fail(Code::resource_exhausted,
                "the RDMA device has no " + std::string(what) + " left: " + describe(error));
}

Result<std::unique_ptr<Card>> Card::open(ibv_device* device, const CardOptions& options) {
    std::unique_ptr<Card> card(new Card);
    if (Status status = card->open_all(device, options); !status.ok()) return status;
    return card;
}

Status Card::open_all(ibv_device* device, const CardOptions& options) {
    const std::string name = ::ibv_get_device_name(device);
    context_.reset(::ibv_open_device(device));
    if (!context_) {
        return fail(Code::unavailable,
                    "can't open the RDMA device " + name + ": " + describe(errno));
    }
    ibv_device_attr device_attr{};
    if (const int error = ::ibv_query_device(context_.get(), &device_attr)) {
        return fail(Code::unavailable,
                    "the RDMA device " + name + " does not answer: " + describe(error));
    }
    ibv_port_attr port{};
    if (const int error = ::ibv_query_port(context_.get(), 1, &port)) {
        return fail(Code::unavailable,
                    "the port of the RDMA device " + name + " does not answer: " + describe(error));
    }
    reads_max_ = std::clamp<std::uint32_t>(
        std::min(static_cast<std::uint32_t>(device_attr.max_qp_rd_atom),
                 static_cast<std::uint32_t>(device_attr.max_qp_init_rd_atom)),
        1, reads_wanted);
    transfer_bytes_max_ = port.max_msg_sz;

    if (!set_nonblocking(context_->async_fd)) return no_room("descriptors", errno);
    domain_.reset(::ibv_alloc_pd(context_.get()));
    if (!domain_) return no_room("protection domains", errno);
    if (options.sleeps) {
        channel_.reset(::ibv_create_comp_channel(context_.get()));
        if (!channel_ || !set_nonblocking(channel_->fd))
            return no_room("completion channels", errno);
    }
    const std::size_t wanted =
        options.receive_slots + completions_besides + credits_most * options.peers_max;
    const std::size_t depth = std::min(wanted, static_cast<std::size_t>(device_attr.max_cqe));
    // A queue that overflows is lost, with all that is on it.
    peers_max_ =
        (depth - std::min(depth, options.receive_slots + completions_besides)) / credits_most;
    if (peers_max_ == 0) return no_room("completions", ENOSPC);
    queue_.reset(
        ::ibv_create_cq(context_.get(), static_cast<int>(depth), nullptr, channel_.get(), 0));
    if (!queue_) return no_room("completion queues", errno);

    ibv_srq_init_attr shared{};
    shared.attr.max_wr =
        std::min(options.receive_slots, static_cast<std::uint32_t>(device_attr.max_srq_wr));
    shared.attr.max_sge = 1;
    shared_.reset(::ibv_create_srq(domain_.get(), &shared));
    if (!shared_) return no_room("shared receive queues", errno);

    const std::uint32_t receive_slots = std::min(options.receive_slots, shared.attr.max_wr);
    if (!sends_.make(options.send_slots, options.message_bytes) ||
        !receives_.make(receive_slots, options.message_bytes)) {
        return fail(Code::resource_exhausted, "no memory for messages over verbs");
    }
    auto send_mr = register_memory(sends_.all(), 0);
    if (!send_mr) return std::move(send_mr).status();
    send_mr_ = *std::move(send_mr);
    auto receive_mr = register_memory(receives_.all(), IBV_ACCESS_LOCAL_WRITE);
    if (!receive_mr) return std::move(receive_mr).status();
    receive_mr_ = *std::move(receive_mr);

    // What the device grants of the wish is known by trying.
    inline_bytes_max_ = inline_bytes_wanted;
    while (!make_queue_pair(LaneRole::messages)) {
        if (inline_bytes_max_ == 0) return no_room("queue pairs", errno);
        inline_bytes_max_ /= 2;
    }
    return {};
}

bool Card::is_behind(const ibv_context* other) const {
    return other && ::ibv_get_device_name(other->device) == name();
}

Result<Owned<ibv_qp>> Card::make_queue_pair(LaneRole role) {
    ibv_qp_init_attr attr{};
    attr.send_cq = queue_.get();
    attr.recv_cq = queue_.get();
    attr.qp_type = IBV_QPT_RC;
    attr.cap.max_send_sge = 1;
    attr.cap.max_send_wr = 1;
    if (role == LaneRole::messages) {
        attr.srq = shared_.get();
        attr.cap.max_send_wr = message_depth;
        attr.cap.max_inline_data = inline_bytes_max_;
    } else {
        attr.cap.max_recv_wr = 1;
        attr.cap.max_recv_sge = 1;
        if (role == LaneRole::asking) attr.cap.max_send_wr = transfer_depth_of_lane;
    }
    Owned<ibv_qp> pair(::ibv_create_qp(domain_.get(), &attr));
    if (!pair) return no_room("queue pairs", errno);
    return pair;
}

Result<Owned<ibv_mr>> Card::register_memory(Bytes memory, int access) {
    ++ledger.registrations;
    Owned<ibv_mr> region(
        ::ibv_reg_mr(domain_.get(), memory.data(), memory.size(), static_cast<unsigned>(access)));
    if (!region) {
        return fail(Code::resource_exhausted, why_not_registered(memory.size(), errno));
    }
    return region;
}

void Card::post_receives(std::span<const std::uint32_t> slots) {
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
        ++ledger.receive_posts;
        // There is room for every slot that exists.
        (void)::ibv_post_srq_recv(shared_.get(), requests, &refused);
        slots = slots.subspan(count);
    }
}

std::size_t Card::poll(std::span<ibv_wc> completions) {
    std::size_t count = 0;
    if (early_ && !completions.empty()) [[unlikely]] {
        completions[count++] = *early_;
        early_.reset();
    }
    const int got = ::ibv_poll_cq(queue_.get(), static_cast<int>(completions.size() - count),
                                  completions.data() + count);
    if (got > 0) count += static_cast<std::size_t>(got);
    return count;
}

bool Card::arm() {
    if (early_ || ::ibv_req_notify_cq(queue_.get(), 0) != 0) return false;
    // What came before that gives no wake-up.
    ibv_wc completion;
    if (::ibv_poll_cq(queue_.get(), 1, &completion) != 1) return true;
    early_ = completion;
    return false;
}

void Card::take_wakes() {
    if (!channel_) return;
    unsigned count = 0;
    ibv_cq* queue = nullptr;
    void* unused = nullptr;
    while (::ibv_get_cq_event(channel_.get(), &queue, &unused) == 0) ++count;
    if (count != 0) ::ibv_ack_cq_events(queue_.get(), count);
}

std::optional<Trouble> Card::trouble() {
    ibv_async_event event{};
    if (::ibv_get_async_event(context_.get(), &event) != 0) return std::nullopt;
    Trouble trouble;
    trouble.words = name() + ": " + ::ibv_event_type_str(event.event_type);
    switch (event.event_type) {
        case IBV_EVENT_QP_FATAL:
        case IBV_EVENT_QP_REQ_ERR:
        case IBV_EVENT_QP_ACCESS_ERR:
        case IBV_EVENT_QP_LAST_WQE_REACHED:
        case IBV_EVENT_COMM_EST: trouble.about = Trouble::About::one_lane; break;
        case IBV_EVENT_CQ_ERR:
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_DEVICE_FATAL: trouble.about = Trouble::About::everything; break;
        default: break;
    }
    ::ibv_ack_async_event(&event);
    return trouble;
}

}  // namespace weft::na::verbs
