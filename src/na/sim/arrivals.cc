// Packets that arrive at a simulated node: put in order, and turned into events.
#include <algorithm>

#include "na/common/no_room.h"
#include "na/connect_pacer.h"
#include "na/hello.h"
#include "na/sim/endpoint.h"

namespace weft::na::sim {

void SimEndpoint::receive(Packet& packet) {
    switch (packet.kind) {
        case Kind::connect:
        case Kind::repeated: return;
        case Kind::connect_timeout: return on_connect_timeout(packet);
        case Kind::accept: return on_accept(packet);
        case Kind::message: return on_message(packet);
        case Kind::down: return on_down(packet);
        case Kind::writable: return on_writable(packet);
        case Kind::rma_put: return on_rma_put(packet);
        case Kind::rma_request: return on_rma_request(packet);
        case Kind::rma_data: return on_rma_data(packet);
        case Kind::rma_reply: return on_rma_reply(packet);
        case Kind::rma_next: return on_rma_next(packet);
        case Kind::rma_more: return on_rma_more(packet);
        case Kind::fence_over: return on_fence_over(packet);
    }
}

// Admits the connect, or passes it to the context that it is for.
void SimEndpoint::take_connect(std::unique_ptr<Packet> packet) {
    Result<Placement::Place> place = this->place(*packet);
    if (!place) return network_.refuse(*packet, place.status());
    const std::uint16_t context = place->context();
    if (context == self_.context) {
        const Status taken = admit(*packet, *std::move(place));
        return taken.ok() ? void() : network_.refuse(*packet, taken);
    }
    struct Passed {
        std::unique_ptr<Packet> packet;
        Placement::Place place;
    };
    const auto passed = std::make_shared<Passed>();
    passed->packet = std::move(packet);
    passed->place = *std::move(place);
    const bool is_passed =
        door_->pass(context, network_.now(), [passed, world = world_](Endpoint* to) {
            const Status taken =
                to ? static_cast<SimEndpoint*>(to)->admit(*passed->packet, std::move(passed->place))
                   : fail(Code::unavailable, "the peer closed its endpoint");
            if (!taken.ok()) world->network().refuse(*passed->packet, taken);
        });
    if (!is_passed) {
        network_.refuse(*passed->packet, fail(busy_code, "context " + std::to_string(context) +
                                                             " of the listener takes no more "
                                                             "connections now"));
    }
}

Result<Placement::Place> SimEndpoint::place(const Packet& packet) {
    const Result<Hello> hello = decode_hello(packet.payload.view());
    if (!hello) return hello.status();
    return door_->placement().place({hello->incarnation, hello->context, hello->wanted},
                                    network_.now(), random_);
}

// The connect is at its context.
Status SimEndpoint::admit(const Packet& packet, Placement::Place place) {
    if (peers_.size() >= limits_.peers_max) return listener_at_peers_max(limits_.peers_max);
    auto connection = std::make_unique<Connection>();
    connection->phase.move_to(PeerPhase::connecting);
    Status taken = apply_hello(*connection, packet.payload);
    if (!taken.ok()) return taken;
    connection->place = std::move(place);
    connection->node = packet.from;
    connection->remote = packet.from_peer;
    connection->host = packet.from_host;
    Connection& added = peers_.add(std::move(connection));
    const PeerId peer = added.id;
    Packet answer = packet_for(Kind::accept, peer, added);
    answer.payload = payload_of(hello());
    send_ordered(added, std::move(answer));
    push_event(up_event(peer, true));
    return {};
}

void SimEndpoint::on_accept(Packet& packet) {
    Connection* connection = peers_.find(packet.to_peer);
    // The connector may have stopped waiting.
    const bool is_awaited = connection && connection->phase == PeerPhase::connecting;
    const Status taken = is_awaited ? apply_hello(*connection, packet.payload)
                                    : fail(Code::unavailable, "the peer closed the connection");
    if (!taken.ok()) {
        network_.refuse(packet, taken);
        packet.code = taken.code();
        packet.text = taken.text();
        return on_down(packet);
    }
    connection->node = packet.from;
    connection->remote = packet.from_peer;
    connection->host = packet.from_host;
    push_event(up_event(packet.to_peer, false));
}

void SimEndpoint::deliver_in_order(Packet& packet) {
    Connection* connection = peers_.find(packet.to_peer);
    if (!connection) {
        // Replies like a host that has no such connection (any more).
        if (packet.kind == Kind::accept) return network_.dispatch(*this, packet);
        const bool needs_reset = packet.kind == Kind::message || packet.kind == Kind::rma_put ||
                                 packet.kind == Kind::rma_request || packet.kind == Kind::rma_data;
        if (needs_reset) network_.reset(packet, "the peer has no such connection");
        return;
    }
    const auto stream = static_cast<std::size_t>(packet.stream);
    StreamOrder& order = connection->orders[stream];
    const bool is_new =
        packet.sequence >= order.next &&
        std::none_of(order.ahead.begin(), order.ahead.end(),
                     [&](const Packet& one) { return one.sequence == packet.sequence; });
    if (!is_new || packet.kind == Kind::repeated) {
        ++network_.faults().repeated;
        return;
    }
    const PeerId peer = packet.to_peer;
    if (packet.sequence != order.next) {
        order.ahead.push_back(std::move(packet));
        return;
    }
    ++order.next;
    network_.dispatch(*this, packet);
    while ((connection = peers_.find(peer))) {  // A dispatch may end the connection.
        StreamOrder& rest = connection->orders[stream];
        const auto next =
            std::find_if(rest.ahead.begin(), rest.ahead.end(),
                         [&](const Packet& one) { return one.sequence == rest.next; });
        if (next == rest.ahead.end()) return;
        Packet taken = std::move(*next);
        rest.ahead.erase(next);
        ++rest.next;
        network_.dispatch(*this, taken);
    }
}

void SimEndpoint::on_lost(const Packet& packet, Code code, std::string_view why) {
    if (!peers_.find(packet.to_peer)) return;
    take_down(packet.to_peer, code, why);
    network_.reset(packet, "the peer lost a packet, and the connection with it");
}

void SimEndpoint::on_connect_timeout(const Packet& packet) {
    const Connection* connection = peers_.find(packet.to_peer);
    if (!connection || connection->phase != PeerPhase::connecting) return;
    // A live listener may take longer.
    const bool is_busy = connection->busy_count != 0 &&
                         network_.now() - connection->busy_at < network_.options().connect_timeout;
    if (is_busy ||
        network_.is_queued(target_name(*connection), self_.node, self_.host, packet.to_peer)) {
        return arm_connect_timeout(packet.to_peer);
    }
    take_down(packet.to_peer, Code::unavailable, "the host did not answer in time");
}

void SimEndpoint::take_down(PeerId peer, Code code, std::string_view why) {
    Packet packet;
    packet.code = code;
    packet.to_peer = peer;
    packet.text = why;
    on_down(packet);
}

void SimEndpoint::on_message(Packet& packet) {
    Connection* connection = peers_.find_up(packet.to_peer);
    if (!connection) return;  // Its peer_down is queued.
    push_event(message_event(packet.to_peer, {}), {}, std::move(packet.payload));
}

void SimEndpoint::on_down(Packet& packet) {
    Connection* connection = peers_.find(packet.to_peer);
    if (!connection || connection->phase == PeerPhase::down) return;
    if (connection->phase == PeerPhase::connecting && is_retryable(packet.code)) {
        connection->busy_at = network_.now();
        return send_connect(packet.to_peer,
                            ConnectPacer::backoff(++connection->busy_count, network_.coins()));
    }
    connection->phase.move_to(PeerPhase::down);
    connection->pending = {};
    connection->queue.clear();
    connection->bytes_queued = 0;
    drop_accesses(*connection);
    finish_all(packet.to_peer, Code::unavailable, packet.text);
    push_event(down_event(packet.to_peer, packet.code), std::move(packet.text));
}

void SimEndpoint::on_writable(Packet& packet) {
    if (Connection* connection = peers_.find(packet.to_peer)) connection->is_refusing = false;
    push_event(writable_event(packet.to_peer));
}

// Events keep their order per peer. Events of no peer are handed out first.
void SimEndpoint::push_event(Event event, std::string text, Payload payload) {
    const bool is_peers =
        event.kind != EventKind::rma_done && event.kind != EventKind::region_fenced;
    if (!is_peers) return events_.own.push({event, std::move(payload), std::move(text)});
    Connection* connection = peers_.find(event.peer);
    if (!connection) return;
    if (connection->inbox.empty()) events_.ready.push(event.peer);
    connection->inbox.push({event, std::move(payload), std::move(text)});
}

}  // namespace weft::na::sim
