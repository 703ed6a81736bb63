// Completion queues, their completion channels, and shared receive queues.
#include <algorithm>
#include <cerrno>

#include "support/fake_verbs_world.h"

namespace weft::test::fake {

void lose(Queue& queue) {
    queue.is_lost = true;
    ibv_async_event event{};
    event.event_type = IBV_EVENT_CQ_ERR;
    event.element.cq = &queue;
    tell(queue.context, event);
}

void give(ibv_cq* to, const Completion& completion) {
    Queue& queue = *static_cast<Queue*>(to);
    if (queue.is_lost) return;
    if (queue.completions.size() >= static_cast<std::size_t>(queue.cqe)) return lose(queue);
    queue.completions.push_back(completion);
    queue.fullest = std::max(queue.fullest, queue.completions.size());
    const bool is_good = completion.wc.status == IBV_WC_SUCCESS;
    if (!queue.armed || (queue.for_solicited && is_good) || !queue.channel) return;
    queue.armed = false;
    auto& channel = *static_cast<Channel*>(queue.channel);
    channel.wakes.push_back(to);
    channel.bell.ring();
}

// As drivers do: a lost receive keeps its buffer, and no completion names it.
void forget_completions(ibv_cq* queue, const Pair& pair) {
    std::erase_if(static_cast<Queue*>(queue)->completions,
                  [&](const Completion& completion) { return completion.pair == &pair; });
}

int poll_cq(ibv_cq* from, int count, ibv_wc* completions) {
    const Entry entry;
    Queue& queue = *static_cast<Queue*>(from);
    if (world().faults.is_broken || queue.is_lost) return 0;
    int got = 0;
    while (got < count && !queue.completions.empty()) {
        const Completion& first = queue.completions.front();
        if (first.is_send) first.pair->room_back = first.sequence;
        completions[got++] = first.wc;
        queue.completions.pop_front();
    }
    return got;
}

int req_notify_cq(ibv_cq* queue, int solicited_only) {
    const Entry entry;
    static_cast<Queue*>(queue)->armed = true;
    static_cast<Queue*>(queue)->for_solicited = solicited_only != 0;
    return 0;
}

int post_srq_recv(ibv_srq* to, ibv_recv_wr* list, ibv_recv_wr** refused) {
    const Entry entry;
    Shared& shared = *static_cast<Shared*>(to);
    for (; list; list = list->next) {
        if (shared.receives.size() >= shared.room || world().faults.is_broken) {
            *refused = list;
            return world().faults.is_broken ? EIO : ENOMEM;
        }
        shared.receives.push_back({list->wr_id, {list->sg_list, list->sg_list + list->num_sge}});
    }
    advance_stalled();
    return 0;
}

static Queue* make_queue(ibv_context* context, int room, void* name, ibv_comp_channel* channel) {
    if (room < 1 || room > world().limits.completions_max || world().faults.is_broken) {
        errno = world().faults.is_broken ? EIO : EINVAL;
        return nullptr;
    }
    auto* queue = new Queue;
    queue->context = context;
    queue->channel = channel;
    queue->cq_context = name;
    queue->cqe = room;
    if (channel) ++channel->refcnt;
    ++of(context).objects;
    ++world().counts.queues;
    return queue;
}

// A plain queue in a parent domain: every queue is used by one thread.
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attr) {
    const Entry entry;
    const bool of_domain = (attr->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
    auto* domain = of_domain ? static_cast<Domain*>(attr->parent_domain) : nullptr;
    if (of_domain && (!domain || !domain->parent)) {
        complain("a completion queue is of a domain that has no parent");
        errno = EINVAL;
        return nullptr;
    }
    Queue* made = make_queue(context, static_cast<int>(attr->cqe), attr->cq_context, attr->channel);
    if (!made) return nullptr;
    made->domain = domain;
    if (domain) ++domain->objects;
    // The two structs begin alike.
    return reinterpret_cast<ibv_cq_ex*>(static_cast<ibv_cq*>(made));
}

}  // namespace weft::test::fake

using namespace weft::test::fake;

extern "C" {

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
    const Entry entry;
    auto* channel = new Channel;
    channel->context = context;
    channel->fd = channel->bell.fd();
    ++of(context).objects;
    ++world().counts.channels;
    return channel;
}

int ibv_destroy_comp_channel(ibv_comp_channel* ended) {
    const Entry entry;
    if (ended->refcnt != 0) {
        complain("a completion channel was destroyed before its queues");
        return EBUSY;
    }
    --of(ended->context).objects;
    destroy(*static_cast<Channel*>(ended), world().counts.channels);
    return 0;
}

int ibv_get_cq_event(ibv_comp_channel* from, ibv_cq** queue, void** context) {
    auto& channel = *static_cast<Channel*>(from);
    if (!channel.bell.take()) return -1;
    const Entry entry;
    if (channel.wakes.empty()) {
        errno = EAGAIN;
        return -1;
    }
    *queue = channel.wakes.front();
    *context = (*queue)->cq_context;
    channel.wakes.pop_front();
    ++static_cast<Queue*>(*queue)->unacknowledged;
    return 0;
}

void ibv_ack_cq_events(ibv_cq* queue, unsigned count) {
    const Entry entry;
    static_cast<Queue*>(queue)->unacknowledged -= static_cast<int>(count);
}

ibv_cq* ibv_create_cq(ibv_context* context, int room, void* name, ibv_comp_channel* channel, int) {
    const Entry entry;
    return make_queue(context, room, name, channel);
}

int ibv_destroy_cq(ibv_cq* ended) {
    Queue& queue = *static_cast<Queue*>(ended);
    await_acknowledged(queue.context, ended, queue.unacknowledged);
    const Entry entry;
    if (queue.pairs != 0) {
        complain("a completion queue was destroyed before its queue pairs");
        return EBUSY;
    }
    complain_if(queue.unacknowledged != 0,
                "a completion queue was destroyed with unacknowledged events");
    if (queue.channel) {
        auto& channel = *static_cast<Channel*>(queue.channel);
        --channel.refcnt;
        for (std::size_t i = std::erase(channel.wakes, ended); i > 0; --i) {
            channel.bell.take_back();
        }
    }
    --of(queue.context).objects;
    if (queue.domain) --queue.domain->objects;
    destroy(queue, world().counts.queues);
    return 0;
}

ibv_srq* ibv_create_srq(ibv_pd* domain, ibv_srq_init_attr* attr) {
    const Entry entry;
    const auto max = static_cast<std::uint32_t>(world().limits.shared_receives_max);
    if (attr->attr.max_wr == 0 || attr->attr.max_wr > max) {
        errno = EINVAL;
        return nullptr;
    }
    auto* shared = new Shared;
    shared->context = domain->context;
    shared->pd = domain;
    shared->room = attr->attr.max_wr;
    ++static_cast<Domain*>(domain)->objects;
    ++world().counts.shared_queues;
    return shared;
}

int ibv_destroy_srq(ibv_srq* ended) {
    Shared& shared = *static_cast<Shared*>(ended);
    await_acknowledged(shared.context, ended, shared.unacknowledged);
    const Entry entry;
    if (shared.pairs != 0) {
        complain("a shared receive queue was destroyed before its queue pairs");
        return EBUSY;
    }
    complain_if(shared.unacknowledged != 0,
                "a shared receive queue was destroyed with unacknowledged events");
    --static_cast<Domain*>(shared.pd)->objects;
    destroy(shared, world().counts.shared_queues);
    return 0;
}

}  // extern "C"
