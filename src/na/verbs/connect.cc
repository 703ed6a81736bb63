// Connection setup: rdma_cm finds the route and carries a ConnectData each way; weft makes and
// connects the queue pairs itself.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"
#include "na/connect_pacer.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr int cm_step_ms_max = 2000;  // Of a step of rdma_cm.
// The other side still remembers this queue pair's number from an earlier connection (IBTA
// 12.6.7.2).
static constexpr int stale_connection = 10;
static constexpr std::uint32_t stale_max = 8;  // Each attempt has another number.
// The listener's process rejected the request, or the kernel did so because its backlog was full.
static constexpr int ended_by_consumer = 28;
static constexpr Duration poll_resolver_every = 2ms;

static bool has_port_up(ibv_context* context) {
    ibv_device_attr device{};
    if (::ibv_query_device(context, &device) != 0) return false;
    for (std::uint8_t number = 1; number <= device.phys_port_cnt; ++number) {
        ibv_port_attr port{};
        const bool answers = ::ibv_query_port(context, number, &port) == 0;
        if (answers && port.state == IBV_PORT_ACTIVE) return true;
    }
    return false;
}

// Opens the first device with a port that is up.
static Owned<ibv_context> first_device() {
    int count = 0;
    ibv_device** devices = ::ibv_get_device_list(&count);
    Owned<ibv_context> found;
    for (int i = 0; i < count && !found; ++i) {
        Owned<ibv_context> context = open_context(devices[i]);
        if (context && has_port_up(context.get())) found = std::move(context);
    }
    if (devices) ::ibv_free_device_list(devices);
    return found;
}

// The door and the channel of the connections.
Status VerbsEndpoint::open_cm(const Address* listen) {
    if (Status why = why_no_device(); !why.ok()) return why;
    cm_.door = std::static_pointer_cast<VerbsDoor>(parts_.door);
    if (listen) {
        DoorParts alone;
        alone.peers_max = limits_.peers_max;
        Result<std::shared_ptr<VerbsDoor>> door = VerbsDoor::open(*listen, std::move(alone));
        if (!door) return std::move(door).status();
        cm_.door = *std::move(door);
    }
    if (cm_.door) {
        cm_.channel = &cm_.door->channel(parts_.context);
        return {};
    }
    Result<Owned<rdma_event_channel>> channel = make_event_channel();
    if (!channel) return std::move(channel).status();
    cm_.own_channel = *std::move(channel);
    cm_.channel = cm_.own_channel.get();
    return {};
}

// Of `all` slots or buffers of an endpoint, the share of one of several contexts.
static std::uint32_t share(std::uint32_t all, std::uint16_t contexts) {
    return std::max(all / contexts, slots_min);
}

Status VerbsEndpoint::open_device(SharedDevices& devices, const VerbsOptimizations& optimizations) {
    ibv_device* device = cm_.door ? cm_.door->device() : nullptr;
    Owned<ibv_context> first;
    if (!device) {
        first = first_device();
        if (first) device = first->device;
    }
    if (!device) {
        return fail(Code::unavailable,
                    "verbs: this machine has no RDMA device with a port that is up");
    }
    Result<std::shared_ptr<SharedDevice>> shared = devices.open(device, parts_);
    if (!shared) return std::move(shared).status();
    DeviceOptions options;
    options.send_slots = share(send_slots, parts_.contexts);
    options.receive_slots = share(receive_slots, parts_.contexts);
    options.message_bytes = message_bytes_wanted;
    options.peers_max = limits_.peers_max;
    options.sleeps = parts_.sleeps;
    options.optimizations = optimizations;
    options.context = parts_.context;
    options.contexts = parts_.contexts;
    auto opened = Device::open(*std::move(shared), options);
    if (!opened) return std::move(opened).status();
    device_ = *std::move(opened);
    const std::size_t cached =
        std::max(cache_bytes_max / parts_.contexts, RegistrationCache::bytes_min);
    cache_.emplace(*device_, parts_.arena, optimizations.registration_cache ? cached : 0);
    limits_.rma_bytes_max = std::min(limits_.rma_bytes_max, device_->transfer_bytes_max());
    limits_.peers_max =
        static_cast<std::uint32_t>(std::min<std::size_t>(limits_.peers_max, device_->peers_max()));

    slots_ = SlotPool<SendSlot>(device_->sends().count(),
                                [this](std::uint32_t i) { return device_->sends().at(i); });
    const std::uint32_t receives = device_->receives().count();
    receives_.handed_out.reserve(receives);
    receives_.idle.reserve(receives);
    for (std::uint32_t i = receives; i-- > 0;) receives_.idle.push_back(i);
    post_idle_receives();
    return watch_descriptors();
}

Status VerbsEndpoint::watch_descriptors() {
    if (cm_.door) {
        cm_.listener_fd = cm_.door->listener_fd();
        cm_.duty = {*cm_.door, parts_.context};
        schedule_.note(cm_.duty.next_deadline());
    }
    const int watched[] = {cm_.channel->fd, cm_.listener_fd, device_->async_fd(),
                           device_->failure_fd(), device_->wait_fd()};
    for (const int fd : watched) {
        epoll_event event{};
        if (fd != cm_.listener_fd || cm_.duty.is_on()) event.events = EPOLLIN;
        event.data.fd = fd;
        if (fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
            return fail(Code::resource_exhausted,
                        "no file descriptor for verbs: " + describe(errno));
        }
    }
    if (cm_.door) cm_.door->enter(parts_.context, *this);
    return {};
}

void VerbsEndpoint::start_resolving(Connection& peer, const Address& to) {
    peer.phase.move_to(PeerPhase::resolving);
    peer.resolution = Resolution::start(to, now_);
    schedule_.add(peer, now_);
}

void VerbsEndpoint::serve_resolving(Connection& peer) {
    if (peer.phase == PeerPhase::waiting) {  // It paused, as the listener was busy.
        peer.started = now_;
        schedule_.add(peer, now_ + handshake_max);
        return start_connecting(peer);
    }
    if (!peer.resolution->done()) {
        if (now_ - peer.started >= handshake_max) {
            return take_down(peer, Code::unavailable,
                             peer.info.uri + ": no answer from the resolver");
        }
        return schedule_.add(peer, now_ + poll_resolver_every);
    }
    const auto answer = peer.resolution->answer();
    peer.resolution.reset();
    if (!answer) return take_down(peer, Code::unavailable, std::string(answer.status().text()));
    peer.name = *answer;
    schedule_.add(peer, peer.started + handshake_max);
    start_connecting(peer);
}

void VerbsEndpoint::start_connecting(Connection& peer) {
    WEFT_ASSERT(!peer.message_queue_pair && !peer.incoming);
    peer.phase.move_to(PeerPhase::connecting);
    if (!device_error_.empty()) return take_down(peer, Code::unavailable, device_error_);
    peer.message_queue_pair = take_queue_pair(peer);
    if (!peer.message_queue_pair)
        return take_down(peer, Code::resource_exhausted, "the endpoint has too many queue pairs");
    QueuePair& queue_pair = peer.message_queue_pair->value;
    queue_pair.cm_id.reset(make_cm_id(cm_.channel, peer.message_queue_pair->id()));
    sockaddr_storage to{};
    std::memcpy(&to, peer.name.get(), peer.name.size());
    if (!queue_pair.cm_id ||
        ::rdma_resolve_addr(queue_pair.cm_id.get(), nullptr, reinterpret_cast<sockaddr*>(&to),
                            cm_step_ms_max)) {
        take_down(peer, Code::unavailable,
                  "no route to " + peer.name.text() + " over verbs: " + describe(errno));
    }
}

void VerbsEndpoint::poll_cm_events() {
    while (const std::optional<CmEvent> event = take_cm_event(*cm_.channel)) on_cm_event(*event);
}

void VerbsEndpoint::on_cm_event(const CmEvent& cm_event) {
    if (cm_event.type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(cm_event);
    const bool is_removal = cm_event.type == RDMA_CM_EVENT_DEVICE_REMOVAL;
    if (is_removal && cm_.door && cm_.door->is_listener(cm_event.id)) {
        device_->report_failure(device_->name() + " was removed");
        return check_failure();
    }
    // Nothing is found for a request that is on its way to another context, or from there.
    QueuePairEntry* queue_pair = queue_pairs_.table.find(cm_event.queue_pair);
    if (!queue_pair) return;
    if (queue_pair->value.draining) {
        if (cm_event.type == RDMA_CM_EVENT_DISCONNECTED && !queue_pair->value.ended)
            flush_queue_pair(*queue_pair);
        return;
    }
    Connection* peer = peers_.find(queue_pair->value.peer);
    if (!peer || peer->message_queue_pair != queue_pair) return;
    const std::string& uri = peer->info.uri;
    switch (cm_event.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (!device_->is_behind(cm_event.id->verbs)) {
                return take_down(*peer, Code::unimplemented,
                                 "the route to " + uri + " is not over the device " +
                                     device_->name() + ", which this endpoint has open");
            }
            if (::rdma_resolve_route(cm_event.id, cm_step_ms_max) == 0) return;
            return take_down(*peer, Code::unavailable, uri + ": no route: " + describe(errno));
        case RDMA_CM_EVENT_ROUTE_RESOLVED: return on_route(*peer);
        case RDMA_CM_EVENT_CONNECT_RESPONSE: return on_response(*peer, cm_event);
        case RDMA_CM_EVENT_REJECTED: return on_rejected(*peer, cm_event);
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_CONNECT_ERROR:
            return take_down(
                *peer, Code::unavailable,
                uri + ": " + ::rdma_event_str(cm_event.type) + ": " + describe(cm_event.status));
        case RDMA_CM_EVENT_DISCONNECTED: {
            // Messages that the peer sent before have arrived already.
            const PeerId id = peer->id;
            (void)read_completions(true);
            if (Connection* still = peers_.find(id))
                on_hang_up(*still, "the peer ended the connection");
            return;
        }
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return take_down(*peer, Code::unavailable, "the RDMA device was removed");
        default: return;
    }
}

rdma_conn_param VerbsEndpoint::offer(const QueuePair& queue_pair, ByteView words) const {
    rdma_conn_param offer{};
    offer.private_data = words.data();
    offer.private_data_len = static_cast<std::uint8_t>(words.size());

    offer.retry_count = tries;
    offer.rnr_retry_count = rnr_tries;
    offer.srq = 1;
    offer.qp_num = queue_pair.qp->qp_num;
    return offer;
}

// The more peers, the smaller each window: all of them together must find receive buffers.
std::uint32_t VerbsEndpoint::window_for_next_peer() const {
    return std::clamp(device_->receives().count() / 2 / std::max(peers_.size(), 1u), window_min,
                      window_max);
}

void VerbsEndpoint::on_route(Connection& peer) {
    WEFT_ASSERT(peer.message_queue_pair && !peer.incoming);
    QueuePair& queue_pair = peer.message_queue_pair->value;
    auto qp = device_->make_queue_pair(QueuePairRole::messages);
    if (!qp) return take_down(peer, qp.status().code(), std::string(qp.status().text()));
    queue_pair.qp = *std::move(qp);
    peer.credits.grant(window_for_next_peer());
    std::byte words[connect_data_bytes];
    const std::size_t bytes = encode(own_connect_data(peer), words);
    rdma_conn_param param = offer(queue_pair, {words, bytes});
    if (::rdma_connect(queue_pair.cm_id.get(), &param) != 0) {
        take_down(peer, Code::unavailable, peer.info.uri + ": can't connect: " + describe(errno));
    }
}

ConnectData VerbsEndpoint::own_connect_data(const Connection& peer) const {
    return {parts_.incarnation, peer.id.index, peer.credits.granted(), peer.wanted, parts_.context};
}

void VerbsEndpoint::apply_connect_data(Connection& peer, const ConnectData& connect_data) {
    peer.info.incarnation = connect_data.incarnation;
    peer.remote_index = connect_data.index;
    // Bounded whatever the peer grants: its completions need room in the queue.
    peer.credits.open_window(std::min(connect_data.credits, window_max));
}

// Moves the queue pair from reset to ready to send, with the attributes that rdma_cm negotiated.
Status VerbsEndpoint::connect_queue_pair(QueuePair& queue_pair, Route& route) {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        ibv_qp_attr attr{};
        int mask = 0;
        attr.qp_state = state;
        if (::rdma_init_qp_attr(queue_pair.cm_id.get(), &attr, &mask) != 0) {
            return fail(Code::unavailable, "rdma_cm has no such connection: " + describe(errno));
        }
        if (state == IBV_QPS_INIT) {
            attr.qp_access_flags = 0;  // No remote access: messages only.
            route.port = attr.port_num;
            route.partition = attr.pkey_index;
        } else if (state == IBV_QPS_RTR) {
            attr.min_rnr_timer = rnr_pause;
            route.ah_attr = attr.ah_attr;
            route.mtu = attr.path_mtu;
        } else {
            attr.rnr_retry = rnr_tries;
            attr.retry_cnt = tries;
            route.timeout = attr.timeout;
        }
        if (const int error = ::ibv_modify_qp(queue_pair.qp.get(), &attr, mask)) {
            return fail(Code::unavailable,
                        "the queue pair could not be connected: " + describe(error));
        }
    }
    return {};
}

void VerbsEndpoint::on_response(Connection& peer, const CmEvent& cm_event) {
    QueuePair& queue_pair = peer.message_queue_pair->value;
    const Result<ConnectData> connect_data = decode_connect_data(cm_event.data());
    if (!connect_data) {
        return take_down(peer, connect_data.status().code(),
                         peer.info.uri + ": " + std::string(connect_data.status().text()));
    }
    apply_connect_data(peer, *connect_data);
    // These fail when the listener has withdrawn its response.
    if (Status status = connect_queue_pair(queue_pair, peer.route); !status.ok()) {
        return on_hang_up(peer, peer.info.uri + ": " + std::string(status.text()));
    }
    if (::rdma_establish(queue_pair.cm_id.get()) != 0) {
        return on_hang_up(peer, peer.info.uri + ": " + describe(errno));
    }
    peer.phase.move_to(PeerPhase::handshaking);
    send_hello(peer);
}

void VerbsEndpoint::on_rejected(Connection& peer, const CmEvent& cm_event) {
    // A listener may identify itself and reject afterwards.
    if (peer.phase == PeerPhase::up) {
        return take_down(peer, Code::unavailable,
                         peer.info.uri + " rejected the connection after its hello");
    }
    const auto why = decode_rejection(cm_event.data());
    if (why) {
        std::string text = peer.info.uri + " refused: " + std::string(why->text());
        if (peer.incoming || !is_retryable(why->code())) {
            return take_down(peer, why->code(), std::move(text));
        }
        peer.hang_ups.clear();
        return retry_connect(peer, std::move(text));
    }
    if (cm_event.status == stale_connection) {
        if (peer.incoming || ++peer.stale > stale_max) {
            return take_down(peer, Code::unavailable,
                             peer.info.uri + " takes each new queue pair for an old one");
        }
        give_up_attempt(peer);
        return start_connecting(peer);
    }
    const auto is_zero = [](std::byte one) { return one == std::byte{}; };
    if (cm_event.status == ended_by_consumer &&
        std::all_of(cm_event.private_data, cm_event.private_data + cm_event.private_data_bytes,
                    is_zero)) {
        return on_hang_up(peer, peer.info.uri + " refused without a reason");
    }
    take_down(peer, Code::unavailable, peer.info.uri + ": nothing listens there");
}

// Nothing of this attempt to connect is left; another one may follow.
void VerbsEndpoint::give_up_attempt(Connection& peer) {
    WEFT_ASSERT(peer.message_queue_pair && !peer.incoming);
    while (SendSlot* slot = peer.backlog.pop_front()) release(&peer, *slot);
    backlog_.remove(peer);
    flush_queue_pair(*std::exchange(peer.message_queue_pair, nullptr));
    (void)peer.credits.take_unreturned();
    peer.slots = 0;  // Sends in flight belong to the old queue pair.
    peer.phase.move_to(PeerPhase::waiting);
}

// The listener exists and has no room now: connects again after a pause.
void VerbsEndpoint::retry_connect(Connection& peer, std::string why) {
    give_up_attempt(peer);
    peer.why_waiting = std::move(why);
    schedule_.add(peer, now_ + ConnectPacer::backoff(++peer.busy, parts_.random));
}

// A listener that ends a connection before its hello, without a reason, may have had no room.
void VerbsEndpoint::on_hang_up(Connection& peer, std::string why) {
    if (peer.incoming || peer.phase == PeerPhase::up || !peer.hang_ups.may_retry(now_)) {
        return take_down(peer, Code::unavailable, std::move(why));
    }
    retry_connect(peer, std::move(why));
}

}  // namespace weft::na::verbs
