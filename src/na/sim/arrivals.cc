// What comes to a simulated node: put in order, and made into events.
#include <algorithm>

#include "na/connect_pacer.h"
#include "na/hello.h"
#include "na/sim/endpoint.h"

namespace weft::na::sim {

Status SimEndpoint::on_connect(Cargo& cargo) {
    if (connects_queued_ >= network_.options().listen_backlog) {
        return fail(busy_code, address() + " has too many connects to take");
    }
    ++connects_queued_;
    own_.push({{}, {}, {}, std::make_unique<Cargo>(std::move(cargo))});
    return {};
}

bool SimEndpoint::has_queued(NodeId from, PeerId peer) const {
    return own_.any_of([&](const Arrived& one) {
        return one.connect && one.connect->from == from && one.connect->from_peer == peer;
    });
}

Status SimEndpoint::take_connect(const Cargo& cargo, Event& event) {
    if (links_.size() - links_free_.size() >= limits_.peers_max) {
        return fail(Code::resource_exhausted, address() + " takes no more than " +
                                                  std::to_string(limits_.peers_max) + " peers");
    }
    auto link = std::make_unique<Link>();
    Status taken = take_hello(*link, cargo.parcel);
    if (!taken.ok()) return taken;
    link->node = cargo.from;
    link->remote = cargo.from_peer;
    link->host = cargo.from_host;
    const PeerId peer = add_link(std::move(link));
    Link& added = *find(peer);
    Cargo answer = cargo_for(Kind::accept, peer, added);
    answer.parcel = hello();
    send_ordered(added, std::move(answer));
    event = {};
    event.kind = EventKind::peer_up;
    event.incoming = true;
    event.peer = peer;
    return {};
}

void SimEndpoint::on_accept(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    // It may have given up waiting.
    const bool is_awaited = link && link->state == LinkState::connecting;
    const Status taken = is_awaited ? take_hello(*link, cargo.parcel)
                                    : fail(Code::unavailable, "the peer closed the connection");
    if (!taken.ok()) {
        network_.refuse(cargo, taken);
        cargo.code = taken.code();
        cargo.text = taken.text();
        return on_down(cargo);
    }
    link->node = cargo.from;
    link->remote = cargo.from_peer;
    link->host = cargo.from_host;
    Event event;
    event.kind = EventKind::peer_up;
    event.peer = cargo.to_peer;
    arrive(event);
}

void SimEndpoint::arrange(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    if (!link) {
        // As a host answers that knows no such connection (any more).
        if (cargo.kind == Kind::accept) return network_.hand_over(*this, cargo);
        const bool is_talk = cargo.kind == Kind::message || cargo.kind == Kind::rma_put ||
                             cargo.kind == Kind::rma_request || cargo.kind == Kind::rma_data;
        if (is_talk) network_.reset(cargo, "the peer knows no such connection");
        return;
    }
    const auto lane = static_cast<std::size_t>(cargo.lane);
    Order& order = link->orders[lane];
    const bool is_new = cargo.sequence >= order.next &&
                        std::none_of(order.ahead.begin(), order.ahead.end(), [&](const Cargo& one) {
                            return one.sequence == cargo.sequence;
                        });
    if (!is_new || cargo.kind == Kind::repeated) {
        ++network_.faults().repeated;
        return;
    }
    const PeerId peer = cargo.to_peer;
    if (cargo.sequence != order.next) {
        order.ahead.push_back(std::move(cargo));
        return;
    }
    ++order.next;
    network_.hand_over(*this, cargo);
    while ((link = find(peer))) {  // Handing over may end it.
        Order& rest = link->orders[lane];
        const auto next = std::find_if(rest.ahead.begin(), rest.ahead.end(),
                                       [&](const Cargo& one) { return one.sequence == rest.next; });
        if (next == rest.ahead.end()) return;
        Cargo taken = std::move(*next);
        rest.ahead.erase(next);
        ++rest.next;
        network_.hand_over(*this, taken);
    }
}

void SimEndpoint::on_lost(const Cargo& cargo, Code code, std::string_view why) {
    if (!find(cargo.to_peer)) return;
    end_link(cargo.to_peer, code, why);
    network_.reset(cargo, "the peer lost a packet, and the connection with it");
}

void SimEndpoint::on_no_answer(const Cargo& cargo) {
    const Link* link = find(cargo.to_peer);
    if (!link || link->state != LinkState::connecting) return;
    // A listener that is there may take longer.
    const bool is_busy = link->busy_times != 0 &&
                         network_.now() - link->busy_at < network_.options().connect_timeout;
    if (is_busy || network_.is_queued(sought_by(*link), *this, cargo.to_peer)) {
        return await_answer(cargo.to_peer);
    }
    end_link(cargo.to_peer, Code::unavailable, "no answer in time");
}

void SimEndpoint::end_link(PeerId peer, Code code, std::string_view why) {
    Cargo cargo;
    cargo.code = code;
    cargo.to_peer = peer;
    cargo.text = why;
    on_down(cargo);
}

void SimEndpoint::on_message(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    if (!link || link->state != LinkState::up) return;  // Its end is on its way to our user.
    Event event;
    event.kind = EventKind::message;
    event.peer = cargo.to_peer;
    arrive(event, {}, std::move(cargo.parcel));
}

void SimEndpoint::on_down(Cargo& cargo) {
    Link* link = find(cargo.to_peer);
    if (!link || link->state == LinkState::down) return;
    if (link->state == LinkState::connecting && may_be_tried_again(cargo.code)) {
        link->busy_at = network_.now();
        return send_connect(cargo.to_peer,
                            ConnectPacer::pause(++link->busy_times, network_.coins()));
    }
    link->state = LinkState::down;
    link->pending = {};
    link->queue.clear();
    link->bytes_queued = 0;
    drop_admissions(*link);
    finish_all(cargo.to_peer, Code::unavailable, cargo.text);
    Event event;
    event.kind = EventKind::peer_down;
    event.code = cargo.code;
    event.peer = cargo.to_peer;
    arrive(event, std::move(cargo.text));
}

void SimEndpoint::on_writable(Cargo& cargo) {
    if (Link* link = find(cargo.to_peer)) link->is_refusing = false;
    Event event;
    event.kind = EventKind::writable;
    event.peer = cargo.to_peer;
    arrive(event);
}

// In order for each peer. What is no peer's is told first.
void SimEndpoint::arrive(Event event, std::string text, Parcel parcel) {
    const bool is_peers =
        event.kind != EventKind::rma_done && event.kind != EventKind::region_fenced;
    if (!is_peers) return own_.push({event, std::move(parcel), std::move(text), nullptr});
    Link* link = find(event.peer);
    if (!link) return;
    if (link->inbox.empty()) ready_.push(event.peer);
    link->inbox.push({event, std::move(parcel), std::move(text), nullptr});
}

}  // namespace weft::na::sim
