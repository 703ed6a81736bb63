#include "na/verbs/cm.h"

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::na::verbs {

// 4.096 us * 2^14 = 67 ms for each acknowledgement.
static constexpr std::uint8_t ack_timeout = 14;

static void* name_of(base::SlotId queue_pair) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(queue_pair.slot) << 32 |
                                   queue_pair.generation);
}

rdma_cm_id* make_cm_id(rdma_event_channel* channel, base::SlotId queue_pair) {
    rdma_cm_id* made = nullptr;
    if (::rdma_create_id(channel, &made, name_of(queue_pair), RDMA_PS_TCP) != 0) return nullptr;
    std::uint8_t timeout = ack_timeout;
    (void)::rdma_set_option(made, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                            sizeof timeout);
    return made;
}

void set_queue_pair(rdma_cm_id& cm_id, base::SlotId queue_pair) {
    cm_id.context = name_of(queue_pair);
}

std::optional<CmEvent> take_cm_event(rdma_event_channel& channel) {
    rdma_cm_event* event = nullptr;
    if (::rdma_get_cm_event(&channel, &event) != 0) return std::nullopt;
    CmEvent taken;
    taken.type = event->event;
    taken.status = event->status;
    taken.id = event->id;
    const auto bits = reinterpret_cast<std::uintptr_t>(event->id->context);
    taken.queue_pair = {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
    const rdma_conn_param& with = event->param.conn;
    if (with.private_data) {
        taken.private_data_bytes =
            std::min<std::size_t>(with.private_data_len, sizeof taken.private_data);
        std::memcpy(taken.private_data, with.private_data, taken.private_data_bytes);
    }
    (void)::rdma_ack_cm_event(event);
    return taken;
}

void reject(rdma_cm_id& cm_id, const Status& why) {
    std::byte words[rejection_bytes_max];
    const std::size_t bytes = encode_rejection(why, words);
    (void)::rdma_reject(&cm_id, words, static_cast<std::uint8_t>(bytes));
}

Result<Owned<rdma_event_channel>> make_event_channel() {
    Owned<rdma_event_channel> channel = open_event_channel();
    if (channel && set_nonblocking(channel->fd)) return channel;
    return fail(Code::unavailable, "verbs: no channel for connections: " + describe(errno) +
                                       "; is the kernel module rdma_ucm loaded?");
}

Status why_no_device() {
    if (!list_devices().empty()) return {};
    return fail(Code::unavailable,
                "verbs: this machine has no RDMA device; `weft info` lists what works here");
}

}  // namespace weft::na::verbs
