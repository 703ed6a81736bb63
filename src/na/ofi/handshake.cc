// How two endpoints become peers. The connector says hello until it hears a welcome or a refusal;
// the acceptor's peer is up once its welcome has left.
#include <algorithm>
#include <cerrno>

#include "base/log.h"
#include "base/random.h"
#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

static constexpr Duration poll_resolver_every = 1ms;
static constexpr Duration connect_spacing = 500us;  // rxm moves its handshake in these attempts.
static constexpr Duration patient_spacing = 20ms;   // At a listener that takes its time.

Hello OfiEndpoint::own_hello() const {
    Hello hello;
    hello.incarnation = parts_.incarnation;
    hello.message_bytes_max = static_cast<std::uint32_t>(limits_.message_bytes_max);
    hello.eager_bytes_max = static_cast<std::uint32_t>(limits_.eager_bytes_max);
    hello.uri = parts_.public_uri.empty() ? address() : parts_.public_uri;
    return hello;
}

// An endpoint on all interfaces has no address of its own: the peer must be told the one that
// libfabric's connection comes from.
SocketName OfiEndpoint::own_name_for(const SocketName& peer) const {
    const SocketName& name = fabric_->name();
    if (!name.is_any()) return name;
    const auto route = SocketName::route_to(peer);
    return route ? route->with_port(name.port()) : name;
}

void OfiEndpoint::serve_resolving(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (!peer.resolution->done()) {
        if (now_ - peer.started >= connect_timeout) {
            bring_down(entry, Code::unavailable, peer.info.uri + ": no answer from the resolver");
        } else {
            attend(entry, now_ + poll_resolver_every);
        }
        return;
    }
    const auto answer = peer.resolution->answer();
    peer.resolution.reset();
    if (!answer) return bring_down(entry, Code::unavailable, std::string(answer.status().text()));
    peer.name = *answer;
    start_connecting(entry);
}

void OfiEndpoint::start_connecting(PeerEntry& entry) {
    Peer& peer = entry.value;
    peer.state = PeerState::connecting;
    if (!fabric_) {
        // Listen, as libfabric must, only where this destination needs it: a client of a loopback
        // server is not to be reached from outside.
        const auto source = SocketName::route_to(peer.name);
        const Status status = source ? open_fabric(*source)
                                     : fail(Code::unavailable, "no route to " + peer.name.text() +
                                                                   ": " + describe(errno));
        opened_at_ = now_;
        if (!status.ok()) return bring_down(entry, status.code(), std::string(status.text()));
    }
    const SocketName& own = fabric_->name();
    if (own.family() != peer.name.family() || (own.is_loopback() && !peer.name.is_loopback())) {
        return bring_down(entry, Code::unimplemented,
                          "can't reach " + peer.name.text() + " from " + own.text() +
                              ", where this endpoint is bound; listen on an address that can");
    }
    serve_connecting(entry);
}

// False: not yet, or never.
bool OfiEndpoint::take_link(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (is_going(peer.name)) {
        attend(entry, now_ + connect_spacing);
        return false;
    }
    peer.link = link_to(peer.name);
    if (!peer.link) {
        bring_down(entry, Code::resource_exhausted,
                   "libfabric takes no further address for " + peer.name.text());
        return false;
    }
    ++peer.link->peers;
    peer.link->members.push_back(peer);
    return true;
}

void OfiEndpoint::serve_connecting(PeerEntry& entry) {
    Peer& peer = entry.value;
    const Duration waited = now_ - peer.started;
    if (const int refused = peer.probe.why_refused()) {
        return bring_down(entry, Code::unavailable, peer.name.text() + ": " + describe(refused));
    }
    // A listener that is there may take its time; now and then it is asked whether it still is.
    const bool is_late = waited >= connect_timeout;
    if (is_late && !peer.probe.answered()) {
        return bring_down(entry, Code::unavailable,
                          "no answer from " + peer.name.text() + " within 2 s");
    }
    if (is_late && now_ >= peer.probe_at) {
        peer.started = now_ - connect_timeout / 2;  // So long it has for the answer.
        peer.probe_at = never;
        peer.probe.start(peer.name);
    } else if (row_.asks_by_socket && waited >= connect_timeout / 2 && !peer.probe.started()) {
        peer.probe.start(peer.name);
    } else if (peer.probe.answered() && peer.probe_at == never) {
        peer.probe_at = now_ + connect_timeout;
    }
    if (!peer.link && !take_link(entry)) return;
    std::byte message[control_bytes_max];
    const std::size_t bytes =
        encode_hello(peer.ours, own_name_for(peer.name), own_hello(), message);
    switch (send_control(*peer.link, {message, bytes})) {
        case Sent::ok: return attend(entry, now_ + hello_again);
        case Sent::again:
            if (row_.asks_by_socket && !peer.probe.started() && waited >= probe_after) {
                peer.probe.start(peer.name);
            }
            return attend(entry, now_ + (is_late ? patient_spacing : connect_spacing));
        case Sent::failed:
            return bring_down(entry, Code::unavailable, "can't send to " + peer.name.text());
    }
}

void OfiEndpoint::serve_accepting(PeerEntry& entry) {
    Peer& peer = entry.value;
    if (now_ - peer.started >= connect_timeout) {
        return bring_down(entry, Code::unavailable, "the welcome did not leave");
    }
    std::byte message[control_bytes_max];
    const std::size_t bytes = encode_welcome(peer.theirs, peer.ours, own_hello(), message);
    switch (send_control(*peer.link, {message, bytes})) {
        case Sent::ok: {
            leave_accepting(peer);
            peer.state = PeerState::up;
            peer.retry = {};
            Event event;
            mark_sockets_later();
            event.kind = EventKind::peer_up;
            event.incoming = true;
            event.peer = id_of(entry);
            return emit(event);
        }
        case Sent::again: return attend(entry, now_ + connect_spacing);
        case Sent::failed: return bring_down(entry, Code::unavailable, "the welcome did not leave");
    }
}

void OfiEndpoint::on_hello(ByteView body) {
    const auto hello = decode_hello_body(body);
    if (!hello || hello->name.family() != fabric_->name().family()) {
        ++dropped_;
        return;
    }
    const auto judged = decode_hello(hello->hello);
    if (!judged) return refuse(*hello, judged.status());
    if (!listening_) {
        return refuse(*hello, fail(Code::unavailable, "this endpoint takes no connections"));
    }

    const auto link_at = links_.find(std::string(as_text(hello->name.bytes())));
    PeerEntry* known = nullptr;
    std::uint32_t accepting_here = 0;
    if (link_at != links_.end()) {
        link_at->second.members.for_each([&](Peer& peer) {
            accepting_here += peer.state == PeerState::accepting;
            if (peer.incoming && peer.theirs == hello->reply_to) known = &PeerTable::entry_of(peer);
        });
    }
    if (known) {  // Said again because our welcome was slow or got lost.
        if (known->value.state != PeerState::up) return;
        std::byte message[control_bytes_max];
        const std::size_t bytes =
            encode_welcome(known->value.theirs, known->value.ours, own_hello(), message);
        send_control(link_at->second, {message, bytes});
        return;
    }
    // It says hello again.
    if (is_going(hello->name) || accepting_here >= accepting_share) return;
    if (link_at == links_.end() && !takes_addresses()) return;
    if (accepting_count_ >= accepting_max && !make_room()) return;
    PeerEntry* entry = take_peer(now_);
    Link* link = entry ? link_to(hello->name) : nullptr;
    if (!link) {
        if (entry) retire(*entry, Code::cancelled);
        return refuse(*hello, fail(Code::resource_exhausted, "too many peers"));
    }
    Peer& peer = entry->value;
    peer.state = PeerState::accepting;
    accepting_.push_back(peer);
    ++accepting_count_;
    peer.incoming = true;
    peer.name = hello->name;
    peer.theirs = hello->reply_to;
    peer.link = link;
    ++link->peers;
    link->members.push_back(peer);
    peer.info.uri = judged->uri;
    take_hello(peer.info, *judged, limits_);
    serve_accepting(*entry);
}

// False: all of them may still be slow.
bool OfiEndpoint::make_room() {
    Peer& oldest = *accepting_.front();
    if (now_ - oldest.started < accepting_least) return false;
    bring_down(PeerTable::entry_of(oldest), Code::unavailable, "the welcome did not leave");
    return true;
}

void OfiEndpoint::leave_accepting(Peer& peer) {
    peer.AcceptingNode::unlink();
    --accepting_count_;
}

// Best effort: a connector that does not get it gives up by itself. Bounded, as each answer takes
// an address and may make libfabric connect to where the hello claims to come from.
void OfiEndpoint::refuse(const HelloBody& hello, const Status& why) {
    if (!takes_addresses()) return;
    Link* link = link_to(hello.name);
    if (!link) return;
    std::byte message[control_bytes_max];
    send_control(*link, {message, encode_refusal(hello.reply_to, why, message)});
    if (link->peers == 0) let_linger(*link);
}

void OfiEndpoint::on_welcome(PeerEntry& entry, ByteView body) {
    Peer& peer = entry.value;
    const auto welcome = decode_welcome_body(body);
    if (!welcome) return bring_down(entry, Code::data_loss, "truncated welcome");
    const auto hello = decode_hello(welcome->hello);
    if (!hello) return bring_down(entry, hello.status().code(), std::string(hello.status().text()));
    peer.theirs = welcome->label;
    take_hello(peer.info, *hello, limits_);
    peer.state = PeerState::up;
    peer.retry = {};
    peer.probe = {};
    if (peer.AttentionNode::is_linked()) peer.AttentionNode::unlink();
    Event event;
    mark_sockets_later();
    event.kind = EventKind::peer_up;
    event.peer = id_of(entry);
    emit(event);
}

void OfiEndpoint::on_refusal(PeerEntry& entry, ByteView body) {
    const auto refusal = decode_refusal_body(body);
    if (!refusal) return bring_down(entry, Code::data_loss, "truncated refusal");
    bring_down(entry, code_of_refusal(static_cast<unsigned>(refusal->code)),
               entry.value.name.text() + " refused: " + std::string(refusal->text));
}

OfiEndpoint::Sent OfiEndpoint::send_control(Link& link, ByteView message) {
    SendSlot* slot = sends_.take(0);
    if (!slot) return Sent::again;
    slot->peer = {};
    std::copy(message.begin(), message.end(), slot->message);
    const ssize_t error = fi_send(fabric_->ep(), slot->message, message.size(), nullptr,
                                  link.address, static_cast<Operation*>(slot));
    link.said(error);
    if (error == 0) {
        slot->under_way = 1;
        return Sent::ok;
    }
    sends_.give_back(*slot);
    return error == -FI_EAGAIN ? Sent::again : Sent::failed;
}

}  // namespace weft::na::ofi
