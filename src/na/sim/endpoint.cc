#include "na/sim/endpoint.h"

#include <algorithm>
#include <cstring>

#include "na/common/no_room.h"
#include "na/hello.h"

namespace weft::na::sim {

static constexpr std::uint32_t rma_depth = 128;
static constexpr std::uint32_t rma_per_peer_max = 32;
static constexpr std::size_t rma_bytes_max = 1 << 20;

static std::size_t padded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

static void fill(Payload& payload, std::uint64_t word) {
    for (std::size_t at = 0; at < payload.size; at += sizeof word) {
        std::memcpy(payload.bytes.get() + at, &word, std::min(sizeof word, payload.size - at));
    }
}

static std::uint64_t count(const Payload& payload, std::uint64_t word) {
    std::uint64_t found = 0;
    for (std::size_t at = 0; at + sizeof word <= payload.size; at += sizeof word) {
        found += std::memcmp(payload.bytes.get() + at, &word, sizeof word) == 0;
    }
    return found;
}

SimEndpoint::SimEndpoint(std::shared_ptr<World> world, std::shared_ptr<SimDoor> door, HostId host,
                         const EndpointParts& parts)
    : arena_(parts.arena),
      random_(parts.random),
      exposures_(parts.exposures),
      world_(std::move(world)),
      network_(world_->network()),
      door_(std::move(door)),
      transfers_(rma_depth) {
    self_.host = host;
    self_.public_uri = parts.public_uri.empty() ? address() : parts.public_uri;
    self_.incarnation = parts.incarnation;
    self_.contexts = parts.contexts;
    self_.context = parts.context;
    limits_.message_bytes_max = network_.options().message_bytes_max;
    limits_.eager_bytes_max = network_.options().eager_bytes_max;
    limits_.rma_bytes_max = rma_bytes_max;
    limits_.rma_depth = rma_depth;
    limits_.rma_per_peer_max = rma_per_peer_max;
    limits_.peers_max = static_cast<std::uint32_t>(parts.peers_max);
}

SimEndpoint::~SimEndpoint() {
    flush();
    shut_down("the peer closed its endpoint", true);
}

Status SimEndpoint::join() {
    self_.resource_faults = &network_.resource_faults(self_.host);
    Result<NodeId> node = network_.join(*this, self_.host);
    if (!node) return node.status();
    self_.node = *node;
    if (!door_) return {};
    door_->add(*this);
    door_->enter(self_.context, *this);
    duty_ = {*door_, self_.context};
    return {};
}

void SimEndpoint::end_process(bool notify_peers) { shut_down("the peer died", notify_peers); }

void SimEndpoint::shut_down(std::string_view why, bool notify_peers) {
    if (!self_.node) return;
    peers_.for_each([&](Connection& connection) {
        const PeerId peer = connection.id;
        if (notify_peers) send_down(peer, connection, why);
        finish_all(peer, Code::cancelled, why);
        remove_connection(peer);
    });
    events_.own.clear();
    network_.leave(self_.node);
    self_.node = {};
    if (door_) {
        door_->leave(self_.context);
        door_->remove(*this, why, notify_peers);
        door_.reset();
    }
    events_.ready.clear();
    regions_.table.clear();
}

Caps SimEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.rma_survives = true;
    caps.rma_checked = network_.options().rma_checked;
    caps.reports_peer_death = true;
    caps.fences_region = network_.options().fences_region;
    caps.fenced_by_end = true;
    caps.sent_survives = true;
    caps.steers = true;
    caps.virtual_time = true;
    return caps;
}

void SimEndpoint::remove_connection(PeerId peer) {
    drop_accesses(*peers_.find(peer));
    peers_.remove(peer);
}

Packet SimEndpoint::packet_for(Kind kind, PeerId peer, const Connection& connection) const {
    Packet packet;
    packet.kind = kind;
    packet.from = self_.node;
    packet.from_peer = peer;
    packet.to = connection.node;
    packet.to_peer = connection.remote;
    packet.from_host = self_.host;
    packet.to_host = connection.host;
    return packet;
}

Hello SimEndpoint::hello() const {
    Hello hello;
    hello.incarnation = self_.incarnation;
    hello.message_bytes_max = static_cast<std::uint32_t>(limits_.message_bytes_max);
    hello.eager_bytes_max = static_cast<std::uint32_t>(limits_.eager_bytes_max);
    hello.uri = self_.public_uri;
    hello.features = own_features;
    hello.contexts = self_.contexts;
    hello.context = self_.context;
    return hello;
}

Payload payload_of(const Hello& hello) {
    Payload payload = Payload::make(hello_bytes_max);
    payload.size = encode(hello, {payload.bytes.get(), payload.room});
    return payload;
}

Status SimEndpoint::apply_hello(Connection& connection, const Payload& payload) {
    Result<Hello> hello = decode_hello(payload.view());
    if (!hello) return hello.status();
    if (connection.info.uri.empty()) connection.info.uri = hello->uri;
    na::apply_hello(connection.info, *hello, limits_);
    connection.phase.move_to(PeerPhase::up);
    connection.established = true;
    return {};
}

Result<PeerId> SimEndpoint::connect(const Address& to, TimePoint now) {
    if (to.scheme != "sim" || to.name.empty()) {
        return fail(Code::invalid_argument, "sim cannot connect to " + to.uri());
    }
    if (!self_.node) return fail(Code::unavailable, "this simulated endpoint is dead");
    network_.advance(now);
    if (self_.resource_faults->must_fail()) {
        return without_memory(to);
    }
    if (peers_.size() >= limits_.peers_max) return at_peers_max(to, limits_.peers_max);
    Connection* const added = peers_.try_add();
    if (!added) return without_memory(to);
    Connection& connection = *added;
    connection.info.uri = to.uri();
    connection.wanted = to.wanted;
    connection.phase.move_to(PeerPhase::connecting);
    const PeerId peer = connection.id;
    send_connect(peer, Duration::zero());
    if (network_.options().connect_timeout > Duration::zero()) arm_connect_timeout(peer);
    return peer;
}

void SimEndpoint::send_connect(PeerId peer, Duration pause) {
    const std::string_view name = target_name(*peers_.find(peer));
    Packet packet;
    packet.kind = Kind::connect;
    packet.from = self_.node;
    packet.from_peer = peer;
    packet.from_host = self_.host;
    packet.to_host = network_.host_of(name);
    packet.text = name;
    Hello own = hello();
    own.wanted = peers_.find(peer)->wanted;
    packet.payload = payload_of(own);
    if (pause == Duration::zero()) return network_.transmit(std::move(packet));
    packet.since = network_.now();
    const Duration way = network_.options().link.latency;
    network_.send(saturating_add(network_.now(), pause + way), std::move(packet));
}

void SimEndpoint::arm_connect_timeout(PeerId peer) {
    Packet over;
    over.kind = Kind::connect_timeout;
    over.to = self_.node;
    over.to_peer = peer;
    network_.send(saturating_add(network_.now(), network_.options().connect_timeout),
                  std::move(over));
}

// The name that `connection` connects to.
std::string_view SimEndpoint::target_name(const Connection& connection) const {
    return std::string_view(connection.info.uri).substr(std::string_view("sim://").size());
}

const PeerInfo* SimEndpoint::info(PeerId peer) const {
    const Connection* connection = peers_.find(peer);
    return connection && connection->established ? &connection->info : nullptr;
}

void SimEndpoint::close(PeerId peer) {
    Connection* connection = peers_.find(peer);
    if (!connection) return;
    if (connection->pending) send_pending(peer, *connection);
    send_down(peer, *connection, "the peer closed the connection");
    finish_all(peer, Code::cancelled, "this side closed the connection");
    remove_connection(peer);
}

void SimEndpoint::send_ordered(Connection& connection, Packet packet, Stream stream) {
    packet.stream = stream;
    packet.sequence = ++connection.orders[static_cast<std::size_t>(stream)].out;
    network_.transmit(std::move(packet));
}

void SimEndpoint::send_down(PeerId peer, Connection& connection, std::string_view why) {
    // Still connecting: the accept finds no connection, and is refused then.
    if (connection.phase != PeerPhase::up) return;
    Packet packet = packet_for(Kind::down, peer, connection);
    packet.code = Code::unavailable;
    packet.text = why;
    send_ordered(connection, std::move(packet));
}

bool SimEndpoint::has_room(const Connection& connection, std::size_t bytes) const {
    const std::size_t waiting =
        connection.bytes_queued + (connection.pending ? padded(connection.pending.size) : 0);
    const std::size_t messages =
        connection.messages_under_way + connection.queue.size() + (connection.pending ? 1 : 0);
    return connection.bytes_under_way + waiting + bytes <=
               network_.options().connection_bytes_max &&
           messages < network_.options().connection_messages_max;
}

std::byte* SimEndpoint::reserve(PeerId peer, std::size_t bytes) noexcept {
    WEFT_DCHECK(!sends_.claim);
    Connection* connection = peers_.find(peer);
    if (!connection || connection->phase != PeerPhase::up ||
        bytes > connection->info.message_bytes_max) {
        return nullptr;
    }
    if (connection->is_refusing) return nullptr;
    const bool is_scarce = self_.resource_faults->must_fail();
    if (is_scarce || network_.refuses()) {
        network_.faults().refused += is_scarce ? 0 : 1;
        connection->is_refusing = true;
        const Duration moment =
            (is_scarce ? 50us : 1us) * (1u << std::min(connection->refusals++, 10u));
        notify_room(peer, moment);
        return nullptr;
    }
    connection->refusals = 0;
    if (!has_room(*connection, bytes)) {
        connection->bytes_wanted = std::max<std::size_t>(bytes, 1);
        wait_for_room(*connection);
        return nullptr;
    }
    sends_.claimer = peer;
    sends_.claim = Payload::make(bytes);
    fill(sends_.claim, network_.poison());
    return sends_.claim.bytes.get();
}

void SimEndpoint::notify_room(PeerId peer, Duration later) {
    Packet packet;
    packet.kind = Kind::writable;
    packet.to = self_.node;
    packet.to_peer = peer;
    network_.send(saturating_add(network_.now(), later), std::move(packet));
}

bool SimEndpoint::commit(std::size_t bytes) noexcept {
    WEFT_DCHECK(sends_.claim && bytes <= sends_.claim.room);
    Payload message = std::exchange(sends_.claim, {});
    Connection* connection = peers_.find(sends_.claimer);
    if (bytes == 0 || !connection || connection->phase != PeerPhase::up) return false;
    message.size = bytes;
    network_.count_unwritten(count(message, network_.poison()));
    const bool joins = sends_.turn_began && network_.options().joins_commits;
    if (connection->pending &&
        padded(connection->pending.size) + bytes <= connection->info.message_bytes_max) {
        append(connection->pending, message.view());
        return true;
    }
    if (connection->pending) send_pending(sends_.claimer, *connection);
    connection->pending = std::move(message);
    if (joins) {
        sends_.pending.push_back(sends_.claimer);
    } else {
        send_pending(sends_.claimer, *connection);
        sends_.turn_began = true;
    }
    return true;
}

void SimEndpoint::append(Payload& pending, ByteView message) {
    const std::size_t start = padded(pending.size);
    const std::size_t end = start + message.size();
    if (end > pending.room) {
        Payload larger = Payload::make(2 * end);
        std::memcpy(larger.bytes.get(), pending.bytes.get(), pending.size);
        larger.size = pending.size;
        pending = std::move(larger);
    }
    std::memset(pending.bytes.get() + pending.size, 0, start - pending.size);
    std::memcpy(pending.bytes.get() + start, message.data(), message.size());
    pending.size = end;
}

void SimEndpoint::send_pending(PeerId peer, Connection& connection) {
    WEFT_ASSERT(connection.id == peer && connection.pending);
    Payload payload = std::exchange(connection.pending, {});
    if (connection.queue.empty() && fits_socket(connection, payload.size)) {
        return send_message(peer, connection, std::move(payload));
    }
    connection.bytes_queued += payload.size;
    connection.queue.push(std::move(payload));
    wait_for_room(connection);
}

void SimEndpoint::wait_for_room(const Connection& connection) {
    if (Node* const other = network_.find(connection.node)) other->request_room();
}

bool SimEndpoint::waits_for_room(PeerId peer) const {
    const Connection* const connection = peers_.find(peer);
    return connection && (!connection->queue.empty() || connection->bytes_wanted != 0);
}

bool SimEndpoint::fits_socket(const Connection& connection, std::size_t bytes) const {
    return connection.bytes_under_way == 0 ||
           connection.bytes_under_way + bytes <= network_.options().socket_bytes_max;
}

void SimEndpoint::send_queued(PeerId peer, Connection& connection) {
    while (!connection.queue.empty() && fits_socket(connection, connection.queue.front().size)) {
        Payload payload = connection.queue.pop();
        WEFT_ASSERT(connection.bytes_queued >= payload.size);
        connection.bytes_queued -= payload.size;
        send_message(peer, connection, std::move(payload));
    }
}

void SimEndpoint::send_message(PeerId peer, Connection& connection, Payload payload) {
    Packet packet = packet_for(Kind::message, peer, connection);
    packet.payload = std::move(payload);
    connection.bytes_under_way += packet.payload.size;
    ++connection.messages_under_way;
    send_ordered(connection, std::move(packet));
}

void SimEndpoint::flush() noexcept {
    for (const PeerId peer : sends_.pending) {
        Connection* connection = peers_.find(peer);
        if (connection && connection->pending) send_pending(peer, *connection);
    }
    sends_.pending.clear();
    sends_.turn_began = false;
}

// Counts data until the receiver has polled it, as a kernel does until the acknowledgement.
std::size_t SimEndpoint::unsent(PeerId peer) const {
    const Connection* const connection = peers_.find_up(peer);
    if (!connection) return 0;
    const Node* const other = network_.find(connection->node);
    const std::size_t given = other ? other->delivered_bytes(connection->remote) : 0;
    return connection->bytes_queued + connection->pending.size + connection->bytes_under_way -
           given;
}

// The network delivers all data of a connection that has not failed, and a close stays behind it.
bool SimEndpoint::has_left(PeerId peer) const {
    const Connection* const connection = peers_.find(peer);
    return !connection || connection->phase != PeerPhase::up ||
           (connection->bytes_queued == 0 && !connection->pending);
}

void SimEndpoint::give_back_room(PeerId peer, std::size_t bytes) {
    Connection* connection = peers_.find(peer);
    if (!connection) return;
    WEFT_ASSERT(connection->bytes_under_way >= bytes && connection->messages_under_way != 0);
    connection->bytes_under_way -= bytes;
    --connection->messages_under_way;
    if (connection->phase == PeerPhase::up) send_queued(peer, *connection);
    if (connection->bytes_wanted == 0 || !has_room(*connection, connection->bytes_wanted)) return;
    connection->bytes_wanted = 0;
    notify_room(peer, network_.options().link.latency);
}

std::size_t SimEndpoint::delivered_bytes(PeerId peer) const {
    std::size_t bytes = 0;
    for (const Delivered& one : events_.delivered) bytes += one.peer == peer ? one.payload.size : 0;
    return bytes;
}

void SimEndpoint::free_delivered() {
    for (const Delivered& message : events_.delivered) {
        const Connection* connection = peers_.find(message.peer);
        Node* sender = connection ? network_.find(connection->node) : nullptr;
        if (sender) sender->give_back_room(connection->remote, message.payload.size);
    }
    events_.delivered.clear();
}

std::size_t SimEndpoint::poll(std::span<Event> events, TimePoint now) noexcept {
    free_delivered();
    peers_.begin_poll();
    events_.sender_waits = false;
    if (!self_.node) return 0;
    network_.advance(now);
    events_.ends_batch = false;
    if (door_ && door_->has_connects()) duty_.serve(now);
    for (std::size_t i = 0; i < events.size() && has_connects(); ++i) take_connect(door_->take());
    std::size_t count = poll_own_events(events);
    std::size_t bytes_left = network_.options().poll_bytes_max;
    // error() describes one event, so that event is the last of its poll.
    while (count < events.size() && bytes_left > 0 && !events_.ends_batch &&
           !events_.ready.empty()) {
        const PeerId peer = next_ready();
        count += poll_peer(peer, events.subspan(count), bytes_left);
        const Connection* connection = peers_.find(peer);
        if (connection && !connection->inbox.empty()) events_.ready.push(peer);
    }
    events_.sender_waits =
        std::any_of(events_.delivered.begin(), events_.delivered.end(), [&](const Delivered& one) {
            const Connection* const connection = peers_.find(one.peer);
            const Node* const sender = connection ? network_.find(connection->node) : nullptr;
            return sender && sender->waits_for_room(connection->remote);
        });
    return count;
}

PeerId SimEndpoint::next_ready() { return events_.ready.pop(); }

std::size_t SimEndpoint::poll_own_events(std::span<Event> events) {
    std::size_t count = 0;
    while (count < events.size() && !events_.ends_batch && !events_.own.empty()) {
        ArrivedEvent arrived = events_.own.pop();
        hand_out(arrived, events[count++]);
    }
    return count;
}

// Hands out at most the share of one peer, and at least one message.
std::size_t SimEndpoint::poll_peer(PeerId peer, std::span<Event> events, std::size_t& bytes_left) {
    std::size_t share = network_.options().poll_share;
    std::size_t count = 0;
    while (count < events.size() && !events_.ends_batch && share > 0 && bytes_left > 0) {
        Connection* connection = peers_.find(peer);
        if (!connection || connection->inbox.empty()) break;
        ArrivedEvent arrived = connection->inbox.pop();
        const std::size_t bytes = arrived.payload.size;
        share -= std::min(bytes, share);
        bytes_left -= std::min(bytes, bytes_left);
        hand_out(arrived, events[count++]);
    }
    return count;
}

void SimEndpoint::hand_out(ArrivedEvent& arrived, Event& event) {
    event = arrived.event;
    events_.ends_batch = !arrived.text.empty();
    if (events_.ends_batch) events_.error = std::move(arrived.text);
    if (event.kind == EventKind::peer_down) {
        WEFT_ASSERT(events_.ends_batch);
        drop_accesses(*peers_.find(event.peer));
        (void)peers_.remove_reported(event.peer);
    }
    if (event.kind != EventKind::message) return;
    event.bytes = arrived.payload.view();
    events_.delivered.push_back({event.peer, std::move(arrived.payload)});
}

}  // namespace weft::na::sim
