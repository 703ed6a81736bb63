// How two endpoints become peers. The connector sends hello until it receives a welcome or a
// refusal; the acceptor's peer is up once its welcome has left.
#include <algorithm>
#include <cerrno>

#include "base/duration_text.h"
#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"
#include "na/ofi/endpoint.h"

namespace weft::na::ofi {

static constexpr Duration poll_resolver_every = 1ms;
static constexpr Duration connect_spacing = 500us;  // rxm's handshake progresses in these attempts.
static constexpr Duration connect_spacing_slow = 20ms;  // At a listener that is slow.

// An endpoint on all interfaces has no address of its own: the peer receives the address that
// libfabric's connection uses.
SocketName OfiEndpoint::own_name_for(const SocketName& peer) const {
    const SocketName& name = fabric_->name();
    if (!name.is_any()) return name;
    const auto route = SocketName::route_to(peer);
    return route ? route->with_port(name.port()) : name;
}

void OfiEndpoint::start_resolving(Connection& peer, const Address& to) {
    peer.phase.move_to(PeerPhase::resolving);
    peer.resolution = Resolution::start(to, clock_.now);
    schedule_.add(peer, clock_.now);
}

void OfiEndpoint::serve_resolving(Connection& peer) {
    if (!peer.resolution->done()) {
        if (clock_.now - peer.started >= connect_timeout) {
            take_down(peer, Code::unavailable, peer.info.uri + ": no answer from the resolver");
        } else {
            schedule_.add(peer, clock_.now + poll_resolver_every);
        }
        return;
    }
    const auto answer = peer.resolution->answer();
    peer.resolution.reset();
    if (!answer) return take_down(peer, Code::unavailable, std::string(answer.status().text()));
    peer.name = *answer;
    start_connecting(peer);
}

void OfiEndpoint::start_connecting(Connection& peer) {
    peer.phase.move_to(PeerPhase::connecting);
    if (!fabric_) {
        // libfabric must listen. It does so only where this destination needs it: a client of a
        // loopback server must not be reachable from outside.
        const auto source = SocketName::route_to(peer.name);
        const Status status = source ? open_fabric(*source)
                                     : fail(Code::unavailable, "no route to " + peer.name.text() +
                                                                   ": " + describe(errno));
        clock_.opened_at = clock_.now;
        if (!status.ok()) return take_down(peer, status.code(), std::string(status.text()));
    }
    const SocketName& own = fabric_->name();
    if (own.family() != peer.name.family() || (own.is_loopback() && !peer.name.is_loopback())) {
        return take_down(peer, Code::unimplemented,
                         "can't reach " + peer.name.text() + " from " + own.text() +
                             ", where this endpoint is bound; listen on an address that can");
    }
    serve_connecting(peer);
}

// False: postponed, or the peer was taken down.
bool OfiEndpoint::assign_av_entry(Connection& peer) {
    WEFT_ASSERT(!peer.av_entry);
    if (is_being_removed(peer.name)) {
        schedule_.add(peer, clock_.now + connect_spacing);
        return false;
    }
    peer.av_entry = find_or_add_av_entry(peer.name);
    if (!peer.av_entry) {
        take_down(peer, Code::resource_exhausted,
                  "libfabric takes no further address for " + peer.name.text());
        return false;
    }
    ++peer.av_entry->peers;
    peer.av_entry->members.push_back(peer);
    return true;
}

void OfiEndpoint::serve_connecting(Connection& peer) {
    WEFT_ASSERT(fabric_ && peer.phase == PeerPhase::connecting);
    const Duration waited = clock_.now - peer.started;
    if (const int refused = peer.probe.why_refused()) {
        return take_down(peer, Code::unavailable, peer.name.text() + ": " + describe(refused));
    }
    // A live listener may be slow to answer; it is probed again from time to time.
    const bool is_late = waited >= connect_timeout;
    if (is_late && !peer.probe.answered()) {
        return take_down(peer, Code::unavailable,
                         "no answer from " + peer.name.text() + " within " +
                             base::duration_text(connect_timeout));
    }
    if (is_late && clock_.now >= peer.probe_at) {
        peer.started = clock_.now - connect_timeout / 2;  // Leaves the other half for the probe.
        peer.probe_at = never;
        peer.probe.start(peer.name);
    } else if (traits_.probes_by_socket && waited >= connect_timeout / 2 && !peer.probe.started()) {
        peer.probe.start(peer.name);
    } else if (peer.probe.answered() && peer.probe_at == never) {
        peer.probe_at = clock_.now + connect_timeout;
    }
    if (!peer.av_entry && !assign_av_entry(peer)) return;
    std::byte message[control_bytes_max];
    const std::size_t bytes =
        encode_hello(peer.ours, own_name_for(peer.name), our_hello(), message);
    switch (send_control(*peer.av_entry, {message, bytes})) {
        case Sent::ok: return schedule_.add(peer, clock_.now + hello_resend_interval);
        case Sent::retry:
            if (traits_.probes_by_socket && !peer.probe.started() && waited >= probe_after) {
                peer.probe.start(peer.name);
            }
            return schedule_.add(peer,
                                 clock_.now + (is_late ? connect_spacing_slow : connect_spacing));
        case Sent::failed:
            return take_down(peer, Code::unavailable, "can't send to " + peer.name.text());
    }
}

void OfiEndpoint::serve_accepting(Connection& peer) {
    if (clock_.now - peer.started >= connect_timeout) {
        return take_down(peer, Code::unavailable, "the welcome did not leave");
    }
    std::byte message[control_bytes_max];
    const std::size_t bytes = encode_welcome(peer.theirs, peer.ours, our_hello(), message);
    switch (send_control(*peer.av_entry, {message, bytes})) {
        case Sent::ok: {
            unlink_accepting(peer);
            peer.phase.move_to(PeerPhase::up);
            peer.retry = {};
            schedule_close_on_exec();
            return events_.push(up_event(peer.id, true));
        }
        case Sent::retry: return schedule_.add(peer, clock_.now + connect_spacing);
        case Sent::failed: return take_down(peer, Code::unavailable, "the welcome did not leave");
    }
}

void OfiEndpoint::on_hello(ByteView body) {
    const auto hello = decode_hello_body(body);
    if (!hello || hello->name.family() != fabric_->name().family()) {
        return;
    }
    const auto judged = decode_hello(hello->hello);
    if (!judged) return refuse(*hello, judged.status());
    if (!listening_) {
        return refuse(*hello, fail(Code::unavailable, "this endpoint takes no connections"));
    }

    const auto av_at = av_.entries.find(std::string(as_text(hello->name.bytes())));
    Connection* known = nullptr;
    std::uint32_t accepting_here = 0;
    if (av_at != av_.entries.end()) {
        av_at->second.members.for_each([&](Connection& peer) {
            accepting_here += peer.phase == PeerPhase::handshaking;
            if (peer.incoming && peer.theirs == hello->reply_to) known = &peer;
        });
    }
    if (known) {  // Repeated, because the welcome was slow or got lost.
        if (known->phase != PeerPhase::up) return;
        std::byte message[control_bytes_max];
        const std::size_t bytes = encode_welcome(known->theirs, known->ours, our_hello(), message);
        send_control(av_at->second, {message, bytes});
        return;
    }
    // No reply: the connector repeats its hello.
    if (is_being_removed(hello->name) || accepting_here >= accepting_share) return;
    if (av_at == av_.entries.end() && !has_av_room()) return;
    if (accepting_.count >= accepting_max && !evict_oldest_accepting()) return;
    if (!has_slot()) return refuse(*hello, listener_at_peers_max(limits_.peers_max));
    AvEntry* av_entry = find_or_add_av_entry(hello->name);
    if (!av_entry) {
        return refuse(*hello, fail(Code::resource_exhausted,
                                   "libfabric takes no further address at the listener"));
    }
    Connection* const added = add_peer();
    if (!added) return refuse(*hello, listener_without_memory());
    Connection& peer = *added;
    peer.phase.move_to(PeerPhase::handshaking);
    accepting_.list.push_back(peer);
    ++accepting_.count;
    peer.incoming = true;
    peer.name = hello->name;
    peer.theirs = hello->reply_to;
    peer.av_entry = av_entry;
    ++av_entry->peers;
    av_entry->members.push_back(peer);
    peer.info.uri = judged->uri;
    apply_hello(peer.info, *judged, limits_);
    serve_accepting(peer);
}

// False: all of them may still be slow, not dead.
bool OfiEndpoint::evict_oldest_accepting() {
    WEFT_ASSERT(!accepting_.list.empty());
    Connection& oldest = *accepting_.list.front();
    if (clock_.now - oldest.started < accepting_min) return false;
    take_down(oldest, Code::unavailable, "the welcome did not leave");
    return true;
}

void OfiEndpoint::unlink_accepting(Connection& peer) {
    WEFT_ASSERT(accepting_.count != 0 && peer.AcceptingNode::is_linked());
    peer.AcceptingNode::unlink();
    --accepting_.count;
}

// Best effort: a connector that receives no refusal times out. Bounded, as each refusal takes an
// address entry and may make libfabric connect to the address that the hello claims.
void OfiEndpoint::refuse(const HelloBody& hello, const Status& why) {
    if (!has_av_room()) return;
    AvEntry* av_entry = find_or_add_av_entry(hello.name);
    if (!av_entry) return;
    std::byte message[control_bytes_max];
    send_control(*av_entry, {message, encode_refusal(hello.reply_to, why, message)});
    if (av_entry->peers == 0) start_lingering(*av_entry);
}

void OfiEndpoint::on_welcome(Connection& peer, ByteView body) {
    const auto welcome = decode_welcome_body(body);
    if (!welcome) return take_down(peer, Code::data_loss, "the peer sent a truncated welcome");
    const auto hello = decode_hello(welcome->hello);
    if (!hello) return take_down(peer, hello.status().code(), std::string(hello.status().text()));
    peer.theirs = welcome->label;
    apply_hello(peer.info, *hello, limits_);
    peer.phase.move_to(PeerPhase::up);
    peer.retry = {};
    peer.probe = {};
    schedule_.remove(peer);
    schedule_close_on_exec();
    events_.push(up_event(peer.id, false));
}

void OfiEndpoint::on_refusal(Connection& peer, ByteView body) {
    const auto refusal = decode_refusal_body(body);
    if (!refusal) return take_down(peer, Code::data_loss, "the peer sent a truncated refusal");
    take_down(peer, code_of_refusal(static_cast<unsigned>(refusal->code)),
              peer.name.text() + " refused: " + std::string(refusal->text));
}

OfiEndpoint::Sent OfiEndpoint::send_control(AvEntry& av_entry, ByteView message) {
    SendSlot* slot = sends_.take(0);
    if (!slot) return Sent::retry;
    WEFT_ASSERT(message.size() <= control_bytes_max);
    slot->peer = {};
    std::copy(message.begin(), message.end(), slot->message);
    const ssize_t error = fi_send(fabric_->ep(), slot->message, message.size(), nullptr,
                                  av_entry.address, static_cast<OperationContext*>(slot));
    av_entry.on_send_result(error);
    if (error == 0) {
        slot->under_way = 1;
        return Sent::ok;
    }
    sends_.give_back(*slot);
    return error == -FI_EAGAIN ? Sent::retry : Sent::failed;
}

}  // namespace weft::na::ofi
