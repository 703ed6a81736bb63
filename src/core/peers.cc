// Connecting, losing and watching peers.
#include <algorithm>

#include "base/assert.h"
#include "base/mutant.h"
#include "core/context.h"

namespace weft::core {

Result<PeerRef> Context::add_peer(std::vector<na::Address> addresses) {
    if (addresses.empty()) return fail(Code::invalid_argument, "no address to connect to");
    if (closed_) return fail(Code::unavailable, "the runtime is shutting down");
    auto* entry = peers_.take();
    if (!entry)
        return fail(Code::resource_exhausted,
                    "this runtime has " + std::to_string(peers_.taken()) +
                        " peers, as many as it may: drop channels that are not needed");
    Peer& peer = entry->value;
    peer.traffic.blocks = {};
    peer.ref = {&peer, entry->generation};
    peer.incoming = false;
    peer.interest = 0;
    peer.is_removed = false;
    peer.state = PeerState::idle;
    peer.path = std::make_unique<Path>(std::move(addresses));
    peer.uri = peer.path->address().uri();
    return peer.ref;
}

void Context::connect(Peer& peer) {
    WEFT_DCHECK(peer.state == PeerState::idle);
    peer.state = PeerState::connecting;
    peer.connect_later.peer = &peer;
    peer.connect_later.context = this;
    peer.connect_later.run = [](Deferred& work) {
        auto& later = static_cast<Peer::ConnectLater&>(work);
        later.context->start_connecting(*later.peer);
    };
    defer(peer.connect_later);
}

void Context::start_connecting(Peer& peer) {
    if (closed_) return lost(peer, fail(Code::unavailable, "the runtime is shutting down"));
    follow(peer, peer.path->start(), {});
}

// One connection of the peer at a time is its own: the one whose events and messages count.
void Context::bind(Peer& peer, const Peer::Connection& connection) {
    EndpointSlot& slot = *connection.endpoint;
    peer.endpoint = &slot;
    peer.na_id = connection.id;
    if (slot.peers.size() <= connection.id.index) slot.peers.resize(connection.id.index + 1);
    WEFT_DCHECK(!slot.peers[connection.id.index]);
    slot.peers[connection.id.index] = &peer;
    slot.idle_polls = 0;
}

Peer::Connection Context::unbind(Peer& peer) {
    if (!peer.na_id) return {};
    peer.endpoint->peers[peer.na_id.index] = nullptr;
    return {std::exchange(peer.endpoint, nullptr), std::exchange(peer.na_id, {})};
}

bool Peer::Connection::is_up() const { return id && endpoint->endpoint->info(id); }

void Peer::Connection::close() {
    if (id) endpoint->endpoint->close(id);
    *this = {};
}

// Does what the path says until something is under way, the peer is up or lost.
// `why`: what the last attempt came to.
void Context::follow(Peer& peer, Path::Step step, Status why) {
    while (true) {
        if (step.action == Path::Action::use_held && !peer.held.is_up()) {
            peer.held = {};
            why = fail(Code::unavailable, "the connection was lost");
            step = peer.path->failed(why);
            continue;
        }
        if (step.action != Path::Action::connect) break;
        Peer::Connection before = unbind(peer);
        if (step.hold) {
            peer.held = before;
        } else {
            before.close();
        }
        peer.next_endpoint = 0;
        peer.opened = false;
        why = fail(Code::unimplemented, "no transport here speaks " + peer.path->address().scheme);
        if (try_endpoints(peer, why)) return;
        step = peer.path->failed(why);
    }
    if (step.action == Path::Action::use_held) {
        Peer::Connection witness = unbind(peer);
        witness.close();
        bind(peer, std::exchange(peer.held, {}));
    }
    if (step.action == Path::Action::give_up) return lost(peer, peer.path->verdict(why));
    peer.held.close();
    peer.uri = peer.path->address().uri();
    if (!use(peer)) lost(peer, fail(Code::unavailable, "the connection was lost again at once"));
}

// One endpoint after the other that speaks the address's scheme, in the end a new one: where there
// is none, or where `why` says that another one may get there. False: nothing is under way.
bool Context::try_endpoints(Peer& peer, Status& why) {
    const na::Address& address = peer.path->address();
    while (true) {
        while (peer.next_endpoint < endpoints_.size()) {
            EndpointSlot& slot = *endpoints_[peer.next_endpoint++];
            if (slot.endpoint->scheme() != address.scheme) continue;
            Result<na::PeerId> id = slot.endpoint->connect(address, now_);
            if (!id) {
                why = std::move(id).status();
                continue;
            }
            peer.uri = address.uri();
            peer.missed = 0;
            bind(peer, {&slot, *id});
            return true;
        }
        if (why.code() != Code::unimplemented || !opener_ || std::exchange(peer.opened, true)) {
            return false;
        }
        if (Status opened = opener_(address); !opened.ok()) {
            why = std::move(opened);
            return false;
        }
    }
}

void Context::on_up(EndpointSlot& slot, const na::Event& event) {
    // Before anything can end this: sender_of() relies on it for the messages that follow.
    if (slot.peers.size() <= event.peer.index) slot.peers.resize(event.peer.index + 1);
    const na::PeerInfo* info = slot.endpoint->info(event.peer);
    if (!info) return;  // Gone already: its peer_down is in the same batch.
    if (!event.incoming) {
        Peer* peer = peer_of(slot, event.peer);
        if (peer) follow(*peer, peer->path->up(info->incarnation), {});
        return;
    }
    auto* entry = closed_ ? nullptr : peers_.take();
    if (!entry) {
        slot.endpoint->close(event.peer);
        return;
    }
    Peer& peer = entry->value;
    peer.traffic.blocks = {};
    peer.ref = {&peer, entry->generation};
    peer.incoming = true;
    peer.interest = 0;
    peer.is_removed = false;
    peer.path = nullptr;
    peer.uri = info->uri.empty() ? std::string(slot.endpoint->scheme()) + " peer" : info->uri;
    bind(peer, {&slot, event.peer});
    use(peer);
}

// The peer's connection is the one it is spoken to by. False: it is gone already.
bool Context::use(Peer& peer) {
    const na::PeerInfo* info = peer.endpoint->endpoint->info(peer.na_id);
    if (!info) return false;
    peer.state = PeerState::up;
    peer.incarnation = info->incarnation;
    peer.silence = {};
    peer.has_all = is_ending_;
    peer.unsent = 0;
    peer.message_bytes_max = info->message_bytes_max;
    peer.eager_bytes_max = info->eager_bytes_max;
    update_direct(peer);
    peer.missed = 0;
    peer.answered = peer.owes_ping = peer.owes_pong = false;
    // Calls that outlived the connection before this one.
    if (peer.interest != 0 && !peer.heartbeat.is_linked()) start_heartbeat(peer);
    if (peer.path && log_.enabled(LogLevel::info)) {
        if (const std::string reason = peer.path->reason(); !reason.empty()) {
            log_.info("using " + peer.uri + ": " + reason);
        }
    }
    if (log_.enabled(LogLevel::debug)) log_.debug("connected to " + peer.uri);
    note("connected", peer.uri);
    const PeerRef ref = peer.ref;
    for (FrameSink* sink : all_sinks_) {
        sink->on_peer_up(peer);
        if (peer.state != PeerState::up || peer.ref != ref) return true;
    }
    drain(peer);
    return true;
}

void Context::on_down(EndpointSlot& slot, Peer& peer, Status why) {
    if (peer.state != PeerState::connecting) return lost(peer, std::move(why));
    slot.peers[peer.na_id.index] = nullptr;
    peer.na_id = {};
    if (why.code() == Code::unimplemented && try_endpoints(peer, why)) return;
    follow(peer, peer.path->failed(why), why);
}

std::string Context::why_waiting(const Peer& peer) {
    if (peer.state != PeerState::connecting || !peer.na_id) return {};
    return peer.endpoint->endpoint->why_waiting(peer.na_id);
}

void Context::disconnect(Peer& peer) {
    unbind(peer);
    peer.endpoint = nullptr;
    peer.held.close();
    peer.state = PeerState::idle;
    update_direct(peer);
    timers_.cancel(peer.heartbeat);
    undefer(peer.connect_later);
    drop_all(peer);
}

// The connection is gone already, or was closed by the caller.
void Context::lost(Peer& peer, Status why) {
    // An endpoint's word for what it can't reach; no endpoint can.
    if (why.code() == Code::unimplemented) why = fail(Code::unavailable, std::string(why.text()));
    const PeerRef ref = peer.ref;
    note_silence(peer);
    disconnect(peer);
    if (log_.enabled(LogLevel::debug)) log_.debug("lost " + peer.uri + ": " + why.to_string());
    note("lost", peer.uri, static_cast<std::uint64_t>(why.code()));
    const bool forget = peer.incoming;
    for (FrameSink* sink : all_sinks_) {
        sink->on_peer_down(peer, why);
        if (peer.ref != ref) return;  // A callback removed it.
    }
    if (forget) {
        WEFT_DCHECK(peer.waiting.empty() && !peer.connect_later.is_linked());
        peer.ref = {};
        if (find(ref)) peers_.give_back(base::SlotTable<Peer>::entry_of(peer));
    }
}

// Closes the connection: at once where nothing is on its way, else when that has left. The peer may
// read none of it for as long as a silent one is given, and no longer. Transfers under way are
// cancelled by the close, which does not wait then. Nor does it where only an answer would prove
// that all has left: over libfabric, later connections lost operations when it waited.
void Context::leave(Peer& peer) {
    if (!peer.na_id) return;
    na::Endpoint& endpoint = *peer.endpoint->endpoint;
    const bool is_up = peer.state == PeerState::up && peer.traffic.posted == 0;
    if (is_up) flush(*peer.endpoint);
    const bool can_wait = is_up && peer.endpoint->caps.sent_survives;
    if (!can_wait || (peer.waiting.empty() && endpoint.has_left(peer.na_id)) ||
        base::is_mutated(base::Mutant::last_words_dropped)) {
        return endpoint.close(peer.na_id);
    }
    Peer::Connection connection = unbind(peer);
    if (!departures_.add(connection, peer.waiting, now_, now_ + silence_max())) {
        return connection.close();
    }
    waiting_bytes_ -= std::exchange(peer.waiting_bytes, 0);
    peer.waiting_frames = 0;
}

void Context::shutdown(const Status& why) noexcept {
    closed_ = true;
    deferred_.splice_back(at_end_);
    set_quick(nullptr);
    for (auto& slot : endpoints_) slot->endpoint->flush();
    peers_.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        peer.is_removed = true;
        if (peer.state == PeerState::idle) return;
        leave(peer);
        lost(peer, why);
    });
    for (auto& slot : endpoints_) slot->endpoint->flush();
}

void Context::close_endpoints() noexcept {
    WEFT_DCHECK(closed_);
    departures_.end();
    only_ = nullptr;
    set_quick(nullptr);
    std::vector<std::unique_ptr<EndpointSlot>> closing;
    closing.swap(endpoints_);  // A child that is forked meanwhile finds none half destroyed.
}

void Context::drop_connection(Peer& peer, const Status& why) {
    if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
    lost(peer, why);
}

void Context::remove_peer(Peer& peer, const Status& why) {
    WEFT_ASSERT(find(peer.ref) == &peer);
    const PeerRef ref = peer.ref;
    peer.is_removed = true;
    leave(peer);
    const bool incoming = peer.incoming;
    lost(peer, why);
    if (incoming || peer.ref != ref) return;  // lost() forgot it.
    if (peer.state != PeerState::idle) {
        // A callback of lost() used the peer again.
        if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
        disconnect(peer);
    }
    peer.ref = {};
    peers_.give_back(base::SlotTable<Peer>::entry_of(peer));
}

// ---- an orderly end --------------------------------------------------------------------------
// Messages arrive in order, so the pong to a ping that was sent last proves that all before it
// arrived. A ping or pong that finds no room is not sent: they go out in rounds.
//
// The end waits no longer for a peer that stands still than a call does: it has heartbeats. One
// that reads slowly is not silent, though its pong comes when it has read all that was before the
// ping.
//
// A peer that has all once is done with. What follows, a pong or a refusal say, must not hold up
// the end, and peers that connect later have missed nothing.

std::uint64_t Context::waiting_frames() {
    std::uint64_t all = 0;
    peers_.for_each([&](auto& entry) { all += entry.value.waiting_frames; });
    return all;
}

std::uint64_t Context::undelivered() {
    constexpr Duration round = 100ms;
    is_ending_ = true;
    std::uint64_t unsent = 0, unproven = 0;
    peers_.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        if (peer.state != PeerState::up || peer.has_all) return;
        const std::uint64_t left =
            peer.waiting_frames + peer.endpoint->endpoint->unsent(peer.na_id);
        unsent += left;
        if (peer.endpoint->caps.sent_survives) {
            peer.has_all = left == 0;
        } else {
            ++unproven;
        }
        if (is_needed(peer) && !peer.heartbeat.is_linked()) start_heartbeat(peer);
        if (left < std::exchange(peer.unsent, left)) peer.answered = true;
    });
    if (unsent == 0 && last_pings_end_ == TimePoint()) last_pings_end_ = now_ + silence_max();
    if (last_pings_end_ == TimePoint() || now_ >= last_pings_end_) return unsent;
    if (now_ < last_pings_due_) return unsent + unproven;
    last_pings_due_ = now_ + round;
    peers_.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        if (peer.state != PeerState::up || peer.has_all) return;
        if (!peer.endpoint->caps.sent_survives) send_small(peer, FrameKind::ping, last_ping);
    });
    return unsent + unproven;
}

// ---- liveness --------------------------------------------------------------------------------
// Ticks are counted, not time: when our own process was stopped, the first tick afterwards counts
// as one miss and not as many, so that our own stall accuses nobody.

bool Context::is_needed(const Peer& peer) const {
    const bool is_watched = is_ending_ && !base::is_mutated(base::Mutant::end_unwatched);
    return peer.interest != 0 || (is_watched && !peer.has_all);
}

void Context::start_heartbeat(Peer& peer) {
    peer.missed = 0;
    peer.heard = peer.answered = false;
    peer.heartbeat.peer = &peer;
    peer.heartbeat.context = this;
    peer.heartbeat.fire = [](base::Timer& timer, TimePoint) {
        auto& beat = static_cast<Peer::Heartbeat&>(timer);
        beat.context->on_heartbeat(*beat.peer);
    };
    timers_.arm(peer.heartbeat, saturating_add(now_, options_.heartbeat_interval));
}

// At most: since the heartbeat before the one that had an answer of it last.
void Context::note_silence(Peer& peer) {
    if (peer.state != PeerState::up || !peer.heartbeat.is_linked() || peer.answered) return;
    peer.silence = std::min((peer.missed + 2) * options_.heartbeat_interval, silence_max());
}

// The provider waits for a listener that is there: for long, when it is the only one.
void Context::look_at_attempt(Peer& peer) {
    const bool has_others = peer.path && peer.path->addresses().size() > 1;
    if (!has_others || !peer.na_id || ++peer.missed <= options_.heartbeats_missed_max) return;
    Peer::Connection attempt = unbind(peer);
    attempt.close();
    follow(peer, peer.path->unanswered(), fail(Code::unavailable, "it does not answer yet"));
}

void Context::on_heartbeat(Peer& peer) {
    if (!is_needed(peer)) return;  // The next interest starts it again.
    timers_.arm(peer.heartbeat, saturating_add(now_, options_.heartbeat_interval));
    if (peer.state == PeerState::connecting) return look_at_attempt(peer);
    if (peer.state != PeerState::up) return;
    for (FrameSink* sink : all_sinks_) sink->on_heartbeat(peer);
    // What a peer says by itself does not show that anything of ours gets there: only an answer
    // does, as long as there is room to ask.
    const bool heard = std::exchange(peer.heard, false);
    if (std::exchange(peer.answered, false) || (heard && peer.owes_ping)) {
        peer.missed = 0;
        return;
    }
    // Its pong may wait behind much that it sends.
    if (heard && peer.missed != 0 && peer.endpoint->endpoint->has_arrived(peer.na_id)) {
        peer.missed = 0;
    }
    const bool is_deaf = base::is_mutated(base::Mutant::silence_ignored);
    if (++peer.missed <= options_.heartbeats_missed_max || is_deaf) {
        peer.owes_ping = !send_small(peer, FrameKind::ping);
        return;
    }
    ++counters_.silent_peers;
    const Duration silence = peer.missed * options_.heartbeat_interval;
    log_.write_of_peer(LogLevel::warning, now_, "closing " + peer.uri + ": silent");
    peer.endpoint->endpoint->close(peer.na_id);
    lost(peer,
         fail(Code::unavailable,
              "the peer has been silent for " +
                  std::to_string(
                      std::chrono::duration_cast<std::chrono::milliseconds>(silence).count()) +
                  " ms"));
}

}  // namespace weft::core
