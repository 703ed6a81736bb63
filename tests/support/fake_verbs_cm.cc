#include "support/fake_verbs_cm.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace weft::test::fake {

static constexpr std::size_t request_words_max = 56, answer_words_max = 196, reject_words_max = 148;
static constexpr std::uint8_t usual_ack_timeout = 19;

static int refused(int error) {
    errno = error;
    return -1;
}

struct Place {
    std::string host;  // Empty: any.
    std::uint16_t port = 0;
};

static std::optional<Place> place_of(const sockaddr* address) {
    char text[INET6_ADDRSTRLEN] = {};
    if (address->sa_family == AF_INET) {
        sockaddr_in in{};
        std::memcpy(&in, address, sizeof in);
        if (in.sin_addr.s_addr == INADDR_ANY) return Place{"", ntohs(in.sin_port)};
        ::inet_ntop(AF_INET, &in.sin_addr, text, sizeof text);
        return Place{text, ntohs(in.sin_port)};
    }
    if (address->sa_family == AF_INET6) {
        sockaddr_in6 in{};
        std::memcpy(&in, address, sizeof in);
        if (IN6_IS_ADDR_UNSPECIFIED(&in.sin6_addr)) return Place{"", ntohs(in.sin6_port)};
        ::inet_ntop(AF_INET6, &in.sin6_addr, text, sizeof text);
        return Place{text, ntohs(in.sin6_port)};
    }
    return std::nullopt;
}

static ibv_context* context_at(int device) {
    Context*& context = cm().contexts[device];
    if (!context) context = open_context(device, true);
    return &context->context;
}

CmId* make_id(rdma_event_channel* channel, void* context) {
    auto* id = new CmId;
    id->channel = channel;
    id->context = context;
    id->ps = RDMA_PS_TCP;
    id->qp_type = IBV_QPT_RC;
    id->number = ++world().last_number;
    id->sequence = id->number * 2654435761u >> 8;
    id->ack_timeout = usual_ack_timeout;
    cm().ids[id->number] = id;
    ++static_cast<CmChannel*>(channel)->ids;
    ++world().counts.connections;
    return id;
}

void end_id(CmId& id) {
    complain_if(id.unacknowledged != 0, "a connection was destroyed with unacknowledged events");
    auto& channel = *static_cast<CmChannel*>(id.channel);
    std::vector<CmId*> unread;  // Requests that only the listener had received.
    const std::size_t before = channel.events.size();
    std::erase_if(channel.events, [&](const auto& event) {
        if (event->listen_id == &id) unread.push_back(static_cast<CmId*>(event->id));
        return event->id == &id || event->listen_id == &id;
    });
    for (std::size_t i = channel.events.size(); i < before; ++i) channel.bell.take_back();
    hang_up(id);
    cm().ids.erase(id.number);
    --channel.ids;
    destroy(id, world().counts.connections);
    for (CmId* one : unread) end_id(*one);
}

static CmId& of(rdma_cm_id* id) { return *static_cast<CmId*>(id); }

static std::vector<std::byte> words_of(const rdma_conn_param& param) {
    const auto* from = static_cast<const std::byte*>(param.private_data);
    return from ? std::vector(from, from + param.private_data_len) : std::vector<std::byte>();
}

static rdma_conn_param without_words(rdma_conn_param param) {
    param.private_data = nullptr;
    param.private_data_len = 0;
    return param;
}

static bool is_port_taken(std::uint16_t port) {
    return std::ranges::any_of(cm().ids, [&](const auto& entry) {
        const CmState state = entry.second->state;
        const bool is_bound = state == CmState::bound || state == CmState::listening;
        return is_bound && entry.second->own_port == port;
    });
}

static std::uint16_t free_port() {
    do {
        if (++cm().last_port == 0) cm().last_port = 20'000;
    } while (is_port_taken(cm().last_port));
    return cm().last_port;
}

}  // namespace weft::test::fake

using namespace weft::test::fake;

extern "C" {

rdma_event_channel* rdma_create_event_channel() {
    const Entry entry;
    auto* channel = new CmChannel;
    channel->fd = channel->bell.fd();
    ++world().counts.event_channels;
    return channel;
}

void rdma_destroy_event_channel(rdma_event_channel* ended) {
    const Entry entry;
    auto& channel = *static_cast<CmChannel*>(ended);
    complain_if(channel.ids != 0, "a channel of events was destroyed before its connections");
    destroy(channel, world().counts.event_channels);
}

int rdma_create_id(rdma_event_channel* channel, rdma_cm_id** id, void* context, rdma_port_space) {
    const Entry entry;
    *id = make_id(channel, context);
    return 0;
}

int rdma_destroy_id(rdma_cm_id* id) {
    const Entry entry;
    end_id(of(id));
    return 0;
}

int rdma_migrate_id(rdma_cm_id* moved, rdma_event_channel* channel) {
    const Entry entry;
    CmId& id = of(moved);
    // A real call waits for the acknowledgements.
    complain_if(id.unacknowledged != 0, "a connection was moved with unacknowledged events");
    if (world().faults.migrations > 0) {
        --world().faults.migrations;
        return refused(ENOMEM);
    }
    auto& from = *static_cast<CmChannel*>(id.channel);
    auto& to = *static_cast<CmChannel*>(channel);
    id.channel = channel;
    --from.ids;
    ++to.ids;
    std::deque<std::unique_ptr<CmEvent>> others;
    for (auto& event : from.events) {
        const bool is_its_own = event->id == &id;
        if (is_its_own) from.bell.take_back();
        if (is_its_own) to.bell.ring();
        (is_its_own ? to.events : others).push_back(std::move(event));
    }
    from.events = std::move(others);
    return 0;
}

int rdma_set_option(rdma_cm_id* id, int level, int name, void* value, std::size_t) {
    const Entry entry;
    if (level == RDMA_OPTION_ID && name == RDMA_OPTION_ID_ACK_TIMEOUT) {
        of(id).ack_timeout = *static_cast<std::uint8_t*>(value);
    }
    return 0;
}

int rdma_bind_addr(rdma_cm_id* bound, sockaddr* address) {
    const Entry entry;
    CmId& id = of(bound);
    const auto place = place_of(address);
    if (!place) return refused(EAFNOSUPPORT);
    if (!place->host.empty()) {
        const auto device = device_at(place->host);
        if (!device) return refused(ENODEV);
        id.verbs = context_at(*device);
        id.port_num = 1;
    }
    if (place->port != 0 && is_port_taken(place->port)) return refused(EADDRINUSE);
    id.host = place->host;
    id.own_port = place->port != 0 ? place->port : free_port();
    id.state = CmState::bound;
    return 0;
}

int rdma_listen(rdma_cm_id* bound, int backlog) {
    const Entry entry;
    CmId& id = of(bound);
    if (id.state != CmState::bound) return refused(EINVAL);
    id.backlog = backlog;
    id.state = CmState::listening;
    return 0;
}

__be16 rdma_get_src_port(rdma_cm_id* id) { return htons(of(id).own_port); }
__be16 rdma_get_dst_port(rdma_cm_id* id) { return htons(of(id).port); }

int rdma_resolve_addr(rdma_cm_id* asker, sockaddr*, sockaddr* address, int) {
    const Entry entry;
    CmId& id = of(asker);
    const auto place = place_of(address);
    if (!place) return refused(EAFNOSUPPORT);
    const auto device = device_at(place->host);
    if (!device) {
        tell_id(id, RDMA_CM_EVENT_ADDR_ERROR, -ENODEV);
        return 0;
    }
    id.verbs = context_at(*device);
    id.port_num = 1;
    id.host = place->host;
    id.port = place->port;
    id.own_port = free_port();
    id.state = CmState::resolved;
    tell_id(id, RDMA_CM_EVENT_ADDR_RESOLVED);
    return 0;
}

int rdma_resolve_route(rdma_cm_id* asker, int) {
    const Entry entry;
    CmId& id = of(asker);
    if (id.state != CmState::resolved) return refused(EINVAL);
    if (world().faults.routes > 0) {
        --world().faults.routes;
        tell_id(id, RDMA_CM_EVENT_ROUTE_ERROR, -ETIMEDOUT);
        return 0;
    }
    id.state = CmState::routed;
    tell_id(id, RDMA_CM_EVENT_ROUTE_RESOLVED);
    return 0;
}

int rdma_connect(rdma_cm_id* asker, rdma_conn_param* param) {
    const Entry entry;
    CmId& id = of(asker);
    if (id.state != CmState::routed) return refused(EINVAL);
    if (param->private_data_len > request_words_max) return refused(EINVAL);
    id.own = without_words(*param);
    id.state = CmState::asking;
    if (world().faults.stale > 0) {
        --world().faults.stale;
        id.state = CmState::over;
        tell_id(id, RDMA_CM_EVENT_REJECTED, reject_stale, std::vector<std::byte>(reject_words_max));
        return 0;
    }
    say({CmWordKind::request, id.number, 0, 0, words_of(*param)});
    return 0;
}

int rdma_accept(rdma_cm_id* asked, rdma_conn_param* param) {
    const Entry entry;
    CmId& id = of(asked);
    if (id.state != CmState::asked) return refused(EINVAL);
    if (param->private_data_len > answer_words_max) return refused(EINVAL);
    id.own = without_words(*param);
    id.state = CmState::answered;
    say({CmWordKind::answer, id.number, id.other, 0, words_of(*param)});
    return 0;
}

int rdma_establish(rdma_cm_id* told) {
    const Entry entry;
    CmId& id = of(told);
    if (id.state != CmState::told) return refused(EINVAL);
    id.state = CmState::connected;
    say({CmWordKind::establish, id.number, id.other, 0, {}});
    return 0;
}

int rdma_reject(rdma_cm_id* asked, const void* words, std::uint8_t bytes) {
    const Entry entry;
    CmId& id = of(asked);
    // After the answer, too, until the establish has arrived.
    const bool may_reject =
        id.state == CmState::asked || id.state == CmState::told || id.state == CmState::answered;
    if (!may_reject) return refused(EINVAL);
    if (bytes > reject_words_max) return refused(EINVAL);
    const auto* from = static_cast<const std::byte*>(words);
    const std::uint32_t other = std::exchange(id.other, 0);
    id.state = CmState::over;
    say({CmWordKind::reject, id.number, other, world().faults.rejection,
         from ? std::vector(from, from + bytes) : std::vector<std::byte>()});
    return 0;
}

int rdma_disconnect(rdma_cm_id* ended) {
    const Entry entry;
    CmId& id = of(ended);
    if (id.state != CmState::connected && id.state != CmState::answered) return refused(EINVAL);
    hang_up(id);
    tell_id(id, RDMA_CM_EVENT_DISCONNECTED);
    return 0;
}

int rdma_init_qp_attr(rdma_cm_id* asked, ibv_qp_attr* attr, int* mask) {
    const Entry entry;
    const CmId& id = of(asked);
    if (!id.verbs) return refused(EINVAL);
    const bool is_known = id.state == CmState::asked || id.state == CmState::answered ||
                          id.state == CmState::told || id.state == CmState::connected;
    *mask = IBV_QP_STATE;
    switch (attr->qp_state) {
        case IBV_QPS_INIT:
            attr->port_num = 1;
            attr->pkey_index = 0;
            attr->qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
            *mask |= IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
            return 0;
        case IBV_QPS_RTR:
            if (!is_known) return refused(EINVAL);
            attr->ah_attr.is_global = 1;
            attr->ah_attr.port_num = 1;
            attr->path_mtu = IBV_MTU_1024;
            attr->dest_qp_num = id.theirs.qp_num;
            attr->rq_psn = id.their_sequence & 0xffffff;
            attr->max_dest_rd_atomic = id.theirs.initiator_depth;
            attr->min_rnr_timer = 0;
            *mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                     IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
            return 0;
        case IBV_QPS_RTS:
            if (!is_known) return refused(EINVAL);
            attr->timeout = id.ack_timeout;
            attr->retry_cnt = id.own.retry_count;
            attr->rnr_retry = id.theirs.rnr_retry_count;
            attr->sq_psn = id.sequence & 0xffffff;
            attr->max_rd_atomic = id.theirs.responder_resources;
            *mask |= IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN |
                     IBV_QP_MAX_QP_RD_ATOMIC;
            return 0;
        default: return refused(EINVAL);
    }
}

int rdma_get_cm_event(rdma_event_channel* from, rdma_cm_event** event) {
    auto& channel = *static_cast<CmChannel*>(from);
    if (!channel.bell.take()) return -1;
    const Entry entry;
    if (channel.events.empty()) return refused(EAGAIN);
    CmEvent* const first = channel.events.front().release();
    channel.events.pop_front();
    ++of(first->listen_id ? first->listen_id : first->id).unacknowledged;
    *event = first;
    return 0;
}

int rdma_ack_cm_event(rdma_cm_event* event) {
    const Entry entry;
    --of(event->listen_id ? event->listen_id : event->id).unacknowledged;
    delete static_cast<CmEvent*>(event);
    return 0;
}

}  // extern "C"
