// Connections: rdma_cm finds the way and carries an Opening each way; the queue pairs are ours.
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/log.h"
#include "base/random.h"
#include "na/connect_pacer.h"
#include "na/verbs/endpoint.h"

namespace weft::na::verbs {

static constexpr int step_ms_max = 2000;  // Of rdma_cm.
static constexpr int backlog = 1024;
// The other side still knows our queue pair's number from a connection before (IBTA 12.6.7.2).
static constexpr int stale_connection = 10;
static constexpr std::uint32_t stale_max = 8;  // Each try has another number.
// The listener's process ended the request, or the kernel did for it: its backlog was full.
static constexpr int ended_by_consumer = 28;
static constexpr Duration poll_resolver_every = 2ms;
static constexpr Duration silent_max = 50ms;  // Of one that gives way to others.
// 4.096 us * 2^14 = 67 ms for each of them.
static constexpr std::uint8_t ack_timeout = 14;

static void* name_of(base::SlotId lane) {
    return reinterpret_cast<void*>(static_cast<std::uintptr_t>(lane.slot) << 32 | lane.generation);
}

static base::SlotId lane_of(const rdma_cm_id* connection) {
    const auto bits = reinterpret_cast<std::uintptr_t>(connection->context);
    return {static_cast<std::uint32_t>(bits >> 32), static_cast<std::uint32_t>(bits)};
}

static rdma_cm_id* make_connection(rdma_event_channel* channel, base::SlotId lane) {
    rdma_cm_id* made = nullptr;
    if (::rdma_create_id(channel, &made, name_of(lane), RDMA_PS_TCP) != 0) return nullptr;
    std::uint8_t timeout = ack_timeout;
    (void)::rdma_set_option(made, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout,
                            sizeof timeout);
    return made;
}

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

// The first device with a port that is up, open.
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

Status VerbsEndpoint::listen_at(const Address& listen) {
    if (listen.scheme != scheme()) {
        return fail(Code::invalid_argument,
                    "verbs can't listen at " + listen.uri() + "; use verbs://host:port");
    }
    const Result<SocketName> at = wait_for_name(listen);
    if (!at) return at.status();
    listener_.reset(make_connection(channel_.get(), {}));
    if (!listener_) {
        return fail(Code::resource_exhausted, "verbs: no listener: " + describe(errno));
    }
    sockaddr_storage bytes{};
    std::memcpy(&bytes, at->get(), at->size());
    if (::rdma_bind_addr(listener_.get(), reinterpret_cast<sockaddr*>(&bytes)) != 0 ||
        ::rdma_listen(listener_.get(), backlog) != 0) {
        const int error = errno;
        if (error == EADDRINUSE) {
            return fail(Code::already_exists, listen.uri() + " is in use: " + describe(error));
        }
        return fail(Code::unavailable, "can't listen at " + listen.uri() + ": " + describe(error) +
                                           "; it has to be an address of a network device that an "
                                           "RDMA device is on (`rdma link`)");
    }
    name_ = at->with_port(ntohs(::rdma_get_src_port(listener_.get())));
    return {};
}

Status VerbsEndpoint::open_card(const Address* listen) {
    if (list_devices().empty()) {
        return fail(Code::unavailable,
                    "verbs: this machine has no RDMA device; `weft info` says what "
                    "works here");
    }
    channel_ = open_event_channel();
    if (!channel_ || !set_nonblocking(channel_->fd)) {
        return fail(Code::unavailable, "verbs: no channel for connections: " + describe(errno) +
                                           "; is the kernel module rdma_ucm loaded?");
    }
    if (listen) {
        if (Status status = listen_at(*listen); !status.ok()) return status;
    }
    ibv_device* device = listener_ && listener_->verbs ? listener_->verbs->device : nullptr;
    Owned<ibv_context> first;
    if (!device) {
        first = first_device();
        if (first) device = first->device;
    }
    if (!device) {
        return fail(Code::unavailable,
                    "verbs: this machine has no RDMA device with a port that is up");
    }
    CardOptions options;
    options.send_slots = send_slots;
    options.receive_slots = receive_slots;
    options.message_bytes = message_bytes_wanted;
    options.peers_max = limits_.peers_max;
    options.sleeps = parts_.sleeps;
    options.economies = parts_.economies;
    auto card = Card::open(device, options);
    if (!card) return std::move(card).status();
    card_ = *std::move(card);
    cache_.emplace(*card_, parts_.arena, parts_.economies.cache ? cache_bytes_max : 0);
    signal_every_ = parts_.economies.quiet ? signal_every : 1;
    lanes_per_peer_ = parts_.economies.lanes ? lanes_most : 1;
    limits_.rma_bytes_max = std::min(limits_.rma_bytes_max, card_->transfer_bytes_max());
    limits_.peers_max =
        static_cast<std::uint32_t>(std::min<std::size_t>(limits_.peers_max, card_->peers_max()));

    slots_ = std::vector<SendSlot>(card_->sends().count());
    for (std::uint32_t i = card_->sends().count(); i-- > 0;) {
        slots_[i].message = card_->sends().at(i);
        slots_free_.push_back(&slots_[i]);
    }
    for (std::uint32_t i = card_->receives().count(); i-- > 0;) receives_idle_.push_back(i);
    give_receives();

    const int watched[] = {channel_->fd, card_->trouble_fd(), card_->wait_fd()};
    for (const int fd : watched) {
        epoll_event event{};
        event.events = EPOLLIN;
        event.data.fd = fd;
        if (fd >= 0 && ::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
            return fail(Code::resource_exhausted,
                        "no file descriptor for verbs: " + describe(errno));
        }
    }
    return {};
}

void VerbsEndpoint::serve_resolving(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (!peer.resolution) {  // It paused, as the listener was busy.
        peer.started = now_;
        attend(entry, now_ + handshake_max);
        return start_connecting(entry);
    }
    if (!peer.resolution->done()) {
        if (now_ - peer.started >= handshake_max) {
            return bring_down(entry, Code::unavailable,
                              peer.info.uri + ": no answer from the resolver");
        }
        return attend(entry, now_ + poll_resolver_every);
    }
    const auto answer = peer.resolution->answer();
    peer.resolution.reset();
    if (!answer) return bring_down(entry, Code::unavailable, std::string(answer.status().text()));
    peer.name = *answer;
    attend(entry, peer.started + handshake_max);
    start_connecting(entry);
}

void VerbsEndpoint::start_connecting(PeerEntry& entry) {
    Peer& peer = entry.value;
    peer.state = PeerState::connecting;
    if (!dead_.empty()) return bring_down(entry, Code::unavailable, dead_);
    peer.talk = take_lane(entry);
    if (!peer.talk) return bring_down(entry, Code::resource_exhausted, "too many queue pairs");
    Lane& lane = peer.talk->value;
    lane.connection.reset(make_connection(channel_.get(), peer.talk->id()));
    sockaddr_storage to{};
    std::memcpy(&to, peer.name.get(), peer.name.size());
    if (!lane.connection || ::rdma_resolve_addr(lane.connection.get(), nullptr,
                                                reinterpret_cast<sockaddr*>(&to), step_ms_max)) {
        bring_down(entry, Code::unavailable,
                   "no way to " + peer.name.text() + " over verbs: " + describe(errno));
    }
}

void VerbsEndpoint::look_at_connections() {
    rdma_cm_event* event = nullptr;
    while (::rdma_get_cm_event(channel_.get(), &event) == 0) {
        Happening what;
        what.type = event->event;
        what.status = event->status;

        what.words_bytes =
            std::min<std::size_t>(event->param.conn.private_data_len, sizeof what.words);
        if (event->param.conn.private_data && what.words_bytes != 0) {
            std::memcpy(what.words, event->param.conn.private_data, what.words_bytes);
        } else {
            what.words_bytes = 0;
        }
        rdma_cm_id* connection = event->id;
        (void)::rdma_ack_cm_event(event);
        on_happening(connection, what);
    }
}

void VerbsEndpoint::on_happening(rdma_cm_id* connection, Happening& what) {
    if (what.type == RDMA_CM_EVENT_CONNECT_REQUEST) return on_request(connection, what);
    if (connection == listener_.get() && what.type == RDMA_CM_EVENT_DEVICE_REMOVAL) {
        return give_up(card_->name() + " was taken away");
    }
    LaneEntry* lane = lanes_.find(lane_of(connection));
    if (!lane) return;
    if (lane->value.leaving) {
        if (what.type == RDMA_CM_EVENT_DISCONNECTED && !lane->value.ended) end_talk(*lane);
        return;
    }
    PeerEntry* entry = peers_.find(lane->value.peer);
    if (!entry || entry->value.talk != lane) return;
    const std::string& uri = entry->value.info.uri;
    switch (what.type) {
        case RDMA_CM_EVENT_ADDR_RESOLVED:
            if (!card_->is_behind(connection->verbs)) {
                return bring_down(*entry, Code::unimplemented,
                                  "the way to " + uri + " is not over the device " + card_->name() +
                                      ", which this endpoint has open");
            }
            if (::rdma_resolve_route(connection, step_ms_max) == 0) return;
            return bring_down(*entry, Code::unavailable, uri + ": no route: " + describe(errno));
        case RDMA_CM_EVENT_ROUTE_RESOLVED: return on_route(*entry);
        case RDMA_CM_EVENT_CONNECT_RESPONSE: return on_response(*entry, what);
        case RDMA_CM_EVENT_REJECTED: return on_rejected(*entry, what);
        case RDMA_CM_EVENT_ADDR_ERROR:
        case RDMA_CM_EVENT_ROUTE_ERROR:
        case RDMA_CM_EVENT_UNREACHABLE:
        case RDMA_CM_EVENT_CONNECT_ERROR:
            return bring_down(
                *entry, Code::unavailable,
                uri + ": " + ::rdma_event_str(what.type) + ": " + describe(what.status));
        case RDMA_CM_EVENT_DISCONNECTED: {
            // What it sent before is there already.
            const PeerId id = id_of(*entry);
            (void)read_completions(true);
            if (PeerEntry* still = find(id)) on_hang_up(*still, "the peer ended the connection");
            return;
        }
        case RDMA_CM_EVENT_DEVICE_REMOVAL:
            return bring_down(*entry, Code::unavailable, "the RDMA device was taken away");
        default: return;
    }
}

rdma_conn_param VerbsEndpoint::offer(const Lane& lane, ByteView words) const {
    rdma_conn_param offer{};
    offer.private_data = words.data();
    offer.private_data_len = static_cast<std::uint8_t>(words.size());

    offer.retry_count = tries;
    offer.rnr_retry_count = rnr_tries;
    offer.srq = 1;
    offer.qp_num = lane.pair->qp_num;
    return offer;
}

// Fewer for each, the more there are: their sum is to find buffers.
std::uint32_t VerbsEndpoint::credits_for_one_more() const {
    return std::clamp(card_->receives().count() / 2 / std::max(peers_.taken(), 1u), credits_least,
                      credits_most);
}

void VerbsEndpoint::on_route(PeerEntry& entry) {
    Peer& peer = entry.value;
    Lane& lane = peer.talk->value;
    auto pair = card_->make_queue_pair(LaneRole::messages);
    if (!pair) return bring_down(entry, pair.status().code(), std::string(pair.status().text()));
    lane.pair = *std::move(pair);
    peer.granted = credits_for_one_more();
    std::byte words[opening_bytes];
    const std::size_t bytes = encode({parts_.incarnation, entry.slot, peer.granted}, words);
    rdma_conn_param param = offer(lane, {words, bytes});
    if (::rdma_connect(lane.connection.get(), &param) != 0) {
        bring_down(entry, Code::unavailable, peer.info.uri + ": can't connect: " + describe(errno));
    }
}

void VerbsEndpoint::take_opening(Peer& peer, const Opening& opening) {
    peer.info.incarnation = opening.incarnation;
    peer.their_index = opening.index;
    // Its completions are to find room, whatever it grants.
    peer.credits = peer.credits_full = std::min(opening.credits, credits_most);
}

// From nothing to ready to send, by what rdma_cm agreed on.
Status VerbsEndpoint::bring_into_use(Lane& lane, Route& route) {
    for (const ibv_qp_state state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
        ibv_qp_attr attr{};
        int mask = 0;
        attr.qp_state = state;
        if (::rdma_init_qp_attr(lane.connection.get(), &attr, &mask) != 0) {
            return fail(Code::unavailable, "rdma_cm knows no such connection: " + describe(errno));
        }
        if (state == IBV_QPS_INIT) {
            attr.qp_access_flags = 0;  // Messages only.
            route.port = attr.port_num;
            route.partition = attr.pkey_index;
        } else if (state == IBV_QPS_RTR) {
            attr.min_rnr_timer = rnr_pause;
            route.way = attr.ah_attr;
            route.mtu = attr.path_mtu;
        } else {
            attr.rnr_retry = rnr_tries;
            attr.retry_cnt = tries;
            route.timeout = attr.timeout;
        }
        if (const int error = ::ibv_modify_qp(lane.pair.get(), &attr, mask)) {
            return fail(Code::unavailable,
                        "the queue pair could not be connected: " + describe(error));
        }
    }
    return {};
}

void VerbsEndpoint::on_response(PeerEntry& entry, const Happening& what) {
    Peer& peer = entry.value;
    Lane& lane = peer.talk->value;
    const Result<Opening> opening = decode_opening(ByteView(what.words, what.words_bytes));
    if (!opening) {
        return bring_down(entry, opening.status().code(),
                          peer.info.uri + ": " + std::string(opening.status().text()));
    }
    take_opening(peer, *opening);
    // These fail when the listener took its answer back.
    if (Status status = bring_into_use(lane, peer.route); !status.ok()) {
        return on_hang_up(entry, peer.info.uri + ": " + std::string(status.text()));
    }
    if (::rdma_establish(lane.connection.get()) != 0) {
        return on_hang_up(entry, peer.info.uri + ": " + describe(errno));
    }
    peer.state = PeerState::greeting;
    say_hello(entry);
}

void VerbsEndpoint::on_rejected(PeerEntry& entry, const Happening& what) {
    Peer& peer = entry.value;
    const auto why = decode_rejection(ByteView(what.words, what.words_bytes));
    if (why) {
        std::string text = peer.info.uri + " refused: " + std::string(why->text());
        if (peer.incoming || !may_be_tried_again(why->code())) {
            return bring_down(entry, why->code(), std::move(text));
        }
        peer.hang_ups.clear();
        return try_again(entry, std::move(text));
    }
    if (what.status == stale_connection) {
        if (peer.incoming || ++peer.stale > stale_max) {
            return bring_down(entry, Code::unavailable,
                              peer.info.uri + " takes each of our queue pairs for an old one");
        }
        end_talk(*std::exchange(peer.talk, nullptr));
        return start_connecting(entry);
    }
    const auto is_zero = [](std::byte one) { return one == std::byte{}; };
    if (what.status == ended_by_consumer &&
        std::all_of(what.words, what.words + what.words_bytes, is_zero)) {
        return on_hang_up(entry, peer.info.uri + " refused without a word");
    }
    bring_down(entry, Code::unavailable, peer.info.uri + ": nothing listens there");
}

// The listener is there and has no place for us now.
void VerbsEndpoint::try_again(PeerEntry& entry, std::string why) {
    Peer& peer = entry.value;
    peer.why_waiting = std::move(why);
    while (SendSlot* slot = peer.backlog.pop_front()) release(&peer, *slot);
    if (peer.FlushNode::is_linked()) peer.FlushNode::unlink();
    end_talk(*std::exchange(peer.talk, nullptr));
    peer.slots = peer.owed = 0;  // What is in flight is the old queue pair's.
    peer.state = PeerState::resolving;
    attend(entry, now_ + ConnectPacer::pause(++peer.busy, parts_.random));
}

// A listener that ends a connection before its hello, without a word, may have had no place for us.
void VerbsEndpoint::on_hang_up(PeerEntry& entry, std::string why) {
    Peer& peer = entry.value;
    if (peer.incoming || peer.state == PeerState::up || !peer.hang_ups.may_try_again(now_)) {
        return bring_down(entry, Code::unavailable, std::move(why));
    }
    try_again(entry, std::move(why));
}

// Drops the oldest peer that is not identified yet. False: all of these have come just now.
bool VerbsEndpoint::drop_oldest_stranger() {
    PeerEntry* oldest = nullptr;
    peers_.for_each([&](PeerEntry& entry) {
        const Peer& peer = entry.value;
        if (!peer.incoming || peer.state == PeerState::up) return;
        if (!oldest || peer.started < oldest->value.started) oldest = &entry;
    });
    if (!oldest || now_ - oldest->value.started < silent_max) return false;
    bring_down(*oldest, Code::resource_exhausted, "too many strangers");
    return true;
}

void VerbsEndpoint::on_request(rdma_cm_id* connection, const Happening& what) {
    Owned<rdma_cm_id> owned(connection);
    const auto reject = [&](const Status& why) {
        std::byte words[rejection_bytes_max];
        const std::size_t bytes = encode_rejection(why, words);
        (void)::rdma_reject(connection, words, static_cast<std::uint8_t>(bytes));
    };
    const Result<Opening> opening = decode_opening(ByteView(what.words, what.words_bytes));
    if (!opening) return reject(opening.status());
    if (!dead_.empty()) return reject(fail(Code::unavailable, dead_));
    if (!card_->is_behind(connection->verbs)) {
        return reject(fail(Code::unavailable, "not over the device that this endpoint has open"));
    }
    if (strangers_ >= strangers_max && !drop_oldest_stranger()) {
        return reject(fail(busy_code, "too many unfinished handshakes"));
    }
    PeerEntry* entry = take_peer();
    if (!entry) return reject(fail(Code::resource_exhausted, "too many peers"));
    Peer& peer = entry->value;
    peer.incoming = true;
    ++strangers_;
    peer.talk = take_lane(*entry);
    if (!peer.talk) {
        reject(fail(Code::resource_exhausted, "too many queue pairs"));
        return retire(*entry, Code::unavailable, false);
    }
    connection->context = name_of(peer.talk->id());
    peer.talk->value.connection = std::move(owned);
    attend(*entry, now_ + handshake_max);
    if (const Status status = accept(*entry, *opening); !status.ok()) {
        reject(status);
        retire(*entry, Code::unavailable, false);
    }
}

Status VerbsEndpoint::accept(PeerEntry& entry, const Opening& opening) {
    Peer& peer = entry.value;
    Lane& lane = peer.talk->value;
    auto pair = card_->make_queue_pair(LaneRole::messages);
    if (!pair) return std::move(pair).status();
    lane.pair = *std::move(pair);
    take_opening(peer, opening);
    if (Status status = bring_into_use(lane, peer.route); !status.ok()) {
        return status;
    }
    peer.granted = credits_for_one_more();
    std::byte words[opening_bytes];
    const std::size_t bytes = encode({parts_.incarnation, entry.slot, peer.granted}, words);
    rdma_conn_param param = offer(lane, {words, bytes});

    if (::rdma_accept(lane.connection.get(), &param) != 0) {
        return fail(Code::unavailable, "rdma_accept: " + describe(errno));
    }
    peer.state = PeerState::greeting;
    return {};
}

}  // namespace weft::na::verbs
