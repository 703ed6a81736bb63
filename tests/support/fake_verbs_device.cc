// Devices, protection domains, memory, and the attributes that a device reports.
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "support/fake_verbs_world.h"

namespace weft::test::fake {

static constexpr int gids = 2;

std::optional<int> device_at(const std::string& host) {
    if (world().limits.devices == 0) return std::nullopt;
    const char* real = std::getenv("TEST_RDMA_HOST");
    if (host == "127.0.0.1" || host == "::1" || (real && host == real)) return 0;
    if (host == "127.0.0.2" && world().limits.devices > 1) return 1;
    return std::nullopt;
}

void tell(ibv_context* context, const ibv_async_event& event) {
    of(context).events.push_back(event);
    of(context).bell.ring();
}

void forget_events(ibv_context* context, const void* object) {
    Context& owner = of(context);
    const std::size_t before = owner.events.size();
    std::erase_if(owner.events, [&](const ibv_async_event& event) {
        return event.element.qp == object && event.event_type != IBV_EVENT_PORT_ERR &&
               event.event_type != IBV_EVENT_PORT_ACTIVE;
    });
    for (std::size_t i = owner.events.size(); i < before; ++i) owner.bell.take_back();
}

void await_acknowledged(ibv_context* context, const void* object, const int& unacknowledged) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
    while (true) {
        {
            const Entry entry;
            --world().entries;  // Not one of its own.
            forget_events(context, object);
            if (unacknowledged == 0 || std::chrono::steady_clock::now() > end) return;
        }
        std::this_thread::yield();
    }
}

static int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attr, std::size_t) {
    const Entry entry;
    const int last = world().limits.ports;
    if (port < 1 || port > last) return EINVAL;
    *attr = {};
    const bool is_down = world().faults.is_port_down || port != last;
    attr->state = is_down ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
    attr->max_mtu = attr->active_mtu = IBV_MTU_4096;
    attr->max_msg_sz = world().limits.message_bytes_max;
    attr->gid_tbl_len = gids;
    attr->pkey_tbl_len = 1;
    attr->link_layer = IBV_LINK_LAYER_ETHERNET;
    return world().faults.is_broken && card_of(context) >= 0 ? EIO : 0;
}

static ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr*) {
    const Entry entry;
    ++of(context).objects;
    return new ibv_td{context};
}

static int dealloc_td(ibv_td* domain) {
    const Entry entry;
    --of(domain->context).objects;
    delete domain;
    return 0;
}

static ibv_pd* alloc_domain(ibv_context* context, Domain* parent) {
    auto* domain = new Domain;
    domain->context = context;
    domain->parent = parent;
    if (parent) ++parent->objects;
    ++of(context).objects;
    ++world().counts.domains;
    return domain;
}

static ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
    const Entry entry;
    if (attr->comp_mask != 0) {  // Allocators of the caller.
        errno = EOPNOTSUPP;
        return nullptr;
    }
    return alloc_domain(context, static_cast<Domain*>(attr->pd));
}

Context* open_context(int device, bool for_cm) {
    auto* made = new Context;
    made->sz = sizeof(verbs_context);
    made->query_port = query_port;
    made->alloc_td = alloc_td;
    made->dealloc_td = dealloc_td;
    made->alloc_parent_domain = alloc_parent_domain;
    made->create_cq_ex = create_cq_ex;
    ibv_context& context = made->context;
    context.device = &world().devices[device];
    context.async_fd = made->bell.fd();
    context.cmd_fd = -1;
    context.num_comp_vectors = 1;
    context.abi_compat = __VERBS_ABI_IS_EXTENDED;
    context.ops.poll_cq = poll_cq;
    context.ops.req_notify_cq = req_notify_cq;
    context.ops.post_send = post_send;
    context.ops.post_recv = post_recv;
    context.ops.post_srq_recv = post_srq_recv;
    made->device = device;
    made->is_of_cm = for_cm;
    return made;
}

// 0, or the errno for memory that can't be registered.
static int why_not_registered(std::size_t bytes, unsigned access) {
    World& all = world();
    if (all.faults.is_broken) return EIO;
    if (all.faults.registrations_before >= 0 && all.faults.registrations_before-- == 0) {
        return all.faults.registration_error;
    }
    const bool writes = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
    if (bytes == 0 || (writes && (access & IBV_ACCESS_LOCAL_WRITE) == 0)) return EINVAL;
    const auto regions_max = static_cast<std::size_t>(all.limits.regions_max);
    if (all.regions.size() >= regions_max) return ENOMEM;
    if (all.locked_bytes + bytes > all.limits.locked_bytes_max) return ENOMEM;
    return 0;
}

static ibv_mr* register_memory(ibv_pd* domain, void* address, std::size_t bytes, unsigned access) {
    const Entry entry;
    if (const int error = why_not_registered(bytes, access)) {
        errno = error;
        return nullptr;
    }
    auto* region = new Region;
    region->context = domain->context;
    region->pd = domain;
    region->addr = address;
    region->length = bytes;
    region->access = access;
    region->lkey = region->rkey = ++world().last_number;
    world().regions[region->lkey] = region;
    world().locked_bytes += bytes;
    ++world().registrations;
    ++static_cast<Domain*>(domain)->objects;
    ++world().counts.regions;
    return region;
}

}  // namespace weft::test::fake

using namespace weft::test::fake;

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
    const Entry entry;
    const int devices = world().limits.devices;
    auto** list = new ibv_device*[static_cast<std::size_t>(devices) + 1]();
    for (int i = 0; i < devices; ++i) list[i] = &world().devices[i];
    if (count) *count = devices;
    return list;
}

void ibv_free_device_list(ibv_device** list) {
    const Entry entry;
    delete[] list;
}

const char* ibv_get_device_name(ibv_device* device) { return device->name; }

ibv_context* ibv_open_device(ibv_device* device) {
    const Entry entry;
    if (world().faults.is_broken) {
        errno = EIO;
        return nullptr;
    }
    Context* made = open_context(static_cast<int>(device - world().devices), false);
    world().contexts.push_back(made);
    ++world().counts.contexts;
    return &made->context;
}

int ibv_close_device(ibv_context* context) {
    const Entry entry;
    Context& closed = of(context);
    complain_if(closed.objects != 0, "a device was closed with " + std::to_string(closed.objects) +
                                         " objects that hang on it");
    std::erase(world().contexts, &closed);
    destroy(closed, world().counts.contexts);
    return 0;
}

int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
    const Entry entry;
    const weft::test::FakeLimits& limits = world().limits;
    *attr = {};
    attr->max_mr_size = ~std::uint64_t{0};
    attr->page_size_cap = 4096;
    attr->max_qp = limits.pairs_max;
    attr->max_qp_wr = 1 << 14;
    attr->max_sge = 16;
    attr->max_cq = 1 << 16;
    attr->max_cqe = limits.completions_max;
    attr->max_mr = limits.regions_max;
    attr->max_pd = 1 << 16;
    attr->max_qp_rd_atom = attr->max_qp_init_rd_atom = limits.reads_max;
    attr->max_srq = 1 << 16;
    attr->max_srq_wr = limits.shared_receives_max;
    attr->max_srq_sge = 16;
    attr->phys_port_cnt = static_cast<std::uint8_t>(limits.ports);
    return world().faults.is_broken && card_of(context) >= 0 ? EIO : 0;
}

int ibv_query_port(ibv_context* context, std::uint8_t port, _compat_ibv_port_attr* attr) {
    return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), sizeof(ibv_port_attr));
}

int ibv_query_gid(ibv_context*, std::uint8_t port, int index, ibv_gid* gid) {
    if (port < 1 || port > world().limits.ports || index < 0 || index >= gids) return -1;
    // ::ffff:127.0.0.1, once for each kind of RoCE.
    *gid = {};
    gid->raw[10] = gid->raw[11] = 0xff;
    gid->raw[12] = 127;
    gid->raw[15] = 1;
    return 0;
}

int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index,
                      ibv_gid_entry* entry, std::uint32_t, std::size_t) {
    *entry = {};
    entry->gid_index = index;
    entry->port_num = port;
    entry->gid_type = index == 0 ? IBV_GID_TYPE_ROCE_V1 : IBV_GID_TYPE_ROCE_V2;
    const bool is_there = ibv_query_gid(context, static_cast<std::uint8_t>(port),
                                        static_cast<int>(index), &entry->gid) == 0;
    return is_there ? 0 : ENODATA;
}

ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t room,
                             std::uint32_t flags, std::size_t size) {
    std::size_t count = 0;
    while (count < room && count < gids) {
        const auto index = static_cast<std::uint32_t>(count);
        (void)_ibv_query_gid_ex(context, 1, index, &entries[count++], flags, size);
    }
    return static_cast<ssize_t>(count);
}

int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
    if (!of(context).bell.take()) return -1;
    const Entry entry;
    auto& events = of(context).events;
    if (events.empty()) {
        errno = EAGAIN;
        return -1;
    }
    *event = events.front();
    events.pop_front();
    switch (event->event_type) {
        case IBV_EVENT_CQ_ERR: ++static_cast<Queue*>(event->element.cq)->unacknowledged; break;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            ++static_cast<Shared*>(event->element.srq)->unacknowledged;
            break;
        case IBV_EVENT_DEVICE_FATAL:
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_PORT_ERR: break;
        default: ++static_cast<Pair*>(event->element.qp)->unacknowledged; break;
    }
    return 0;
}

void ibv_ack_async_event(ibv_async_event* event) {
    const Entry entry;
    switch (event->event_type) {
        case IBV_EVENT_CQ_ERR: --static_cast<Queue*>(event->element.cq)->unacknowledged; break;
        case IBV_EVENT_SRQ_ERR:
        case IBV_EVENT_SRQ_LIMIT_REACHED:
            --static_cast<Shared*>(event->element.srq)->unacknowledged;
            break;
        case IBV_EVENT_DEVICE_FATAL:
        case IBV_EVENT_PORT_ACTIVE:
        case IBV_EVENT_PORT_ERR: break;
        default: --static_cast<Pair*>(event->element.qp)->unacknowledged; break;
    }
}

ibv_pd* ibv_alloc_pd(ibv_context* context) {
    const Entry entry;
    return alloc_domain(context, nullptr);
}

int ibv_dealloc_pd(ibv_pd* domain) {
    const Entry entry;
    auto& ended = *static_cast<Domain*>(domain);
    if (ended.objects != 0) {
        complain("a protection domain was ended with " + std::to_string(ended.objects) +
                 " objects in it");
        return EBUSY;
    }
    if (ended.parent) --ended.parent->objects;
    --of(ended.context).objects;
    destroy(ended, world().counts.domains);
    return 0;
}

ibv_mr* ibv_reg_mr(ibv_pd* domain, void* address, std::size_t bytes, int access) {
    return register_memory(domain, address, bytes, static_cast<unsigned>(access));
}

ibv_mr* ibv_reg_mr_iova2(ibv_pd* domain, void* address, std::size_t bytes, std::uint64_t iova,
                         unsigned access) {
    if (iova != reinterpret_cast<std::uintptr_t>(address)) {
        errno = EOPNOTSUPP;
        return nullptr;
    }
    return register_memory(domain, address, bytes, access);
}

int ibv_dereg_mr(ibv_mr* memory) {
    const Entry entry;
    auto& ended = *static_cast<Region*>(memory);
    if (world().faults.deregistrations > 0) {
        --world().faults.deregistrations;
        return world().faults.deregistration_error;
    }
    world().regions.erase(ended.lkey);
    world().locked_bytes -= ended.length;
    ++world().deregistrations;
    --static_cast<Domain*>(ended.pd)->objects;
    destroy(ended, world().counts.regions);
    return 0;
}

}  // extern "C"
