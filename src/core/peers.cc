// Connecting, disconnecting and monitoring peers.
#include <algorithm>

#include "base/assert.h"
#include "core/context.h"

namespace weft::core {

Result<PeerRef> Context::add_peer(std::vector<na::Address> addresses) {
    if (addresses.empty())
        return fail(Code::invalid_argument, "the channel has no address to connect to");
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
    peer.selector = std::make_unique<AddressSelector>(std::move(addresses));
    peer.uri = peer.selector->address().uri();
    return peer.ref;
}

void Context::connect(Peer& peer) {
    WEFT_DCHECK(peer.state == PeerState::idle);
    peer.state = PeerState::connecting;
    peer.deferred_connect.peer = &peer;
    peer.deferred_connect.context = this;
    peer.deferred_connect.run = [](Deferred& work) {
        auto& later = static_cast<Peer::DeferredConnect&>(work);
        later.context->start_connecting(*later.peer);
    };
    defer(peer.deferred_connect);
}

void Context::start_connecting(Peer& peer) {
    if (closed_)
        return on_connection_lost(peer, fail(Code::unavailable, "the runtime is shutting down"));
    advance_connection(peer, peer.selector->start(), {});
}

// A peer has one bound connection at a time: only the events and messages of that connection reach
// it.
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

// Follows the selector until an attempt is in progress, or the peer is up or lost. `why`: the
// status of the last attempt.
void Context::advance_connection(Peer& peer, AddressSelector::Step step, Status why) {
    while (true) {
        if (step.action == AddressSelector::Action::use_kept && !peer.kept_connection.is_up()) {
            peer.kept_connection = {};
            why = fail(Code::unavailable, "the connection was lost");
            step = peer.selector->failed(why);
            continue;
        }
        if (step.action != AddressSelector::Action::connect) break;
        Peer::Connection before = unbind(peer);
        if (step.keep_current) {
            peer.kept_connection = before;
        } else {
            before.close();
        }
        peer.next_endpoint = 0;
        peer.endpoint_opened = false;
        why = fail(Code::unimplemented,
                   "no transport here speaks " + peer.selector->address().scheme);
        if (try_endpoints(peer, why)) return;
        step = peer.selector->failed(why);
    }
    if (step.action == AddressSelector::Action::use_kept) {
        Peer::Connection identified = unbind(peer);
        identified.close();
        bind(peer, std::exchange(peer.kept_connection, {}));
    }
    if (step.action == AddressSelector::Action::give_up)
        return on_connection_lost(peer, peer.selector->failure_status(why));
    peer.kept_connection.close();
    peer.uri = peer.selector->address().uri();
    if (!activate(peer))
        on_connection_lost(peer, fail(Code::unavailable, "the connection was lost again at once"));
}

// Tries each endpoint of the address's scheme, and at last a new one if there is none, or if `why`
// (UNIMPLEMENTED) permits that another one reaches the address. False: no attempt is in progress.
bool Context::try_endpoints(Peer& peer, Status& why) {
    const na::Address& address = peer.selector->address();
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
            peer.missed_heartbeats = 0;
            bind(peer, {&slot, *id});
            return true;
        }
        if (why.code() != Code::unimplemented || !opener_ ||
            std::exchange(peer.endpoint_opened, true)) {
            return false;
        }
        if (Status opened = opener_(address); !opened.ok()) {
            why = std::move(opened);
            return false;
        }
    }
}

void Context::on_up(EndpointSlot& slot, const na::Event& event) {
    // Before any return: sender_of() relies on it for the messages that follow.
    if (slot.peers.size() <= event.peer.index) slot.peers.resize(event.peer.index + 1);
    const na::PeerInfo* info = slot.endpoint->info(event.peer);
    if (!info) return;  // Down already: its peer_down is in the same batch.
    if (!event.incoming) {
        Peer* peer = peer_of(slot, event.peer);
        if (peer) advance_connection(*peer, peer->selector->up(info->incarnation), {});
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
    peer.selector = nullptr;
    peer.uri = info->uri.empty() ? std::string(slot.endpoint->scheme()) + " peer" : info->uri;
    bind(peer, {&slot, event.peer});
    activate(peer);
}

// Starts to use the peer's bound connection. False: it is lost already.
bool Context::activate(Peer& peer) {
    const na::PeerInfo* info = peer.endpoint->endpoint->info(peer.na_id);
    if (!info) return false;
    peer.state = PeerState::up;
    peer.incarnation = info->incarnation;
    peer.silent_for = {};
    peer.all_delivered = is_ending_;
    peer.unsent = 0;
    peer.message_bytes_max = info->message_bytes_max;
    peer.eager_bytes_max = info->eager_bytes_max;
    update_direct(peer);
    peer.missed_heartbeats = 0;
    peer.has_answered = peer.ping_pending = peer.pong_pending = false;
    // For calls that outlived the previous connection.
    if (peer.interest != 0 && !peer.heartbeat.is_linked()) start_heartbeat(peer);
    if (peer.selector && log_.enabled(LogLevel::info)) {
        if (const std::string reason = peer.selector->reason(); !reason.empty()) {
            log_.info("using " + peer.uri + ": " + reason);
        }
    }
    if (log_.enabled(LogLevel::debug)) log_.debug("connected to " + peer.uri);
    record_event("connected", peer.uri);
    const PeerRef ref = peer.ref;
    for (FrameSink* sink : all_sinks_) {
        sink->on_peer_up(peer);
        if (peer.state != PeerState::up || peer.ref != ref) return true;
    }
    drain(peer);
    return true;
}

void Context::on_down(EndpointSlot& slot, Peer& peer, Status why) {
    if (peer.state != PeerState::connecting) return on_connection_lost(peer, std::move(why));
    slot.peers[peer.na_id.index] = nullptr;
    peer.na_id = {};
    if (why.code() == Code::unimplemented && try_endpoints(peer, why)) return;
    advance_connection(peer, peer.selector->failed(why), why);
}

std::string Context::why_waiting(const Peer& peer) {
    if (peer.state != PeerState::connecting || !peer.na_id) return {};
    return peer.endpoint->endpoint->why_waiting(peer.na_id);
}

void Context::disconnect(Peer& peer) {
    unbind(peer);
    peer.endpoint = nullptr;
    peer.kept_connection.close();
    peer.state = PeerState::idle;
    update_direct(peer);
    timers_.cancel(peer.heartbeat);
    undefer(peer.deferred_connect);
    drop_all(peer);
}

// Requires: the connection is lost, or the caller has closed it.
void Context::on_connection_lost(Peer& peer, Status why) {
    // UNIMPLEMENTED means that one endpoint can't reach the address; here no endpoint can.
    if (why.code() == Code::unimplemented) why = fail(Code::unavailable, std::string(why.text()));
    const PeerRef ref = peer.ref;
    record_silence(peer);
    disconnect(peer);
    if (log_.enabled(LogLevel::debug)) log_.debug("lost " + peer.uri + ": " + why.to_string());
    record_event("lost", peer.uri, static_cast<std::uint64_t>(why.code()));
    const bool forget = peer.incoming;
    for (FrameSink* sink : all_sinks_) {
        sink->on_peer_down(peer, why);
        if (peer.ref != ref) return;  // A callback removed it.
    }
    if (forget) {
        WEFT_DCHECK(peer.waiting.empty() && !peer.deferred_connect.is_linked());
        peer.ref = {};
        if (find(ref)) peers_.release(base::SlotTable<Peer>::entry_of(peer));
    }
}

// Closes the connection: at once if no frames are in flight, else when these have left, within
// peer_timeout(). With transfers in flight it does not wait: the close cancels them. Nor does it
// wait where only an answer proves that all has left: over libfabric, later connections lost
// operations when it waited.
void Context::close_gracefully(Peer& peer) {
    if (!peer.na_id) return;
    na::Endpoint& endpoint = *peer.endpoint->endpoint;
    const bool is_up = peer.state == PeerState::up && peer.traffic.posted == 0;
    if (is_up) flush(*peer.endpoint);
    const bool can_wait = is_up && peer.endpoint->caps.sent_survives;
    if (!can_wait || (peer.waiting.empty() && endpoint.has_left(peer.na_id))) {
        return endpoint.close(peer.na_id);
    }
    Peer::Connection connection = unbind(peer);
    if (!lingering_.add(connection, peer.waiting, now_, now_ + peer_timeout())) {
        return connection.close();
    }
    waiting_bytes_ -= std::exchange(peer.waiting_bytes, 0);
    peer.waiting_frames = 0;
}

void Context::shutdown(const Status& why) noexcept {
    closed_ = true;
    deferred_.splice_back(deferred_to_end_);
    set_fast_slot(nullptr);
    for (auto& slot : endpoints_) slot->endpoint->flush();
    peers_.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        peer.is_removed = true;
        if (peer.state == PeerState::idle) return;
        close_gracefully(peer);
        on_connection_lost(peer, why);
    });
    for (auto& slot : endpoints_) slot->endpoint->flush();
}

void Context::close_endpoints() noexcept {
    WEFT_DCHECK(closed_);
    lingering_.close_all();
    sole_slot_ = nullptr;
    set_fast_slot(nullptr);
    std::vector<std::unique_ptr<EndpointSlot>> closing;
    closing.swap(endpoints_);  // A child forked meanwhile finds none half destroyed.
}

void Context::drop_connection(Peer& peer, const Status& why) {
    if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
    on_connection_lost(peer, why);
}

void Context::remove_peer(Peer& peer, const Status& why) {
    WEFT_ASSERT(find(peer.ref) == &peer);
    const PeerRef ref = peer.ref;
    peer.is_removed = true;
    close_gracefully(peer);
    const bool incoming = peer.incoming;
    on_connection_lost(peer, why);
    if (incoming || peer.ref != ref) return;  // on_connection_lost() removed it.
    if (peer.state != PeerState::idle) {
        // A callback of on_connection_lost() used the peer again.
        if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
        disconnect(peer);
    }
    peer.ref = {};
    peers_.release(base::SlotTable<Peer>::entry_of(peer));
}

// ---- an orderly end --------------------------------------------------------------------------
// Messages arrive in order, so the pong to a final ping proves that all before it arrived. A ping
// or pong without room is not sent: final pings are sent in rounds.
//
// The end waits for a peer without progress no longer than a call does: heartbeats bound both. A
// peer that reads slowly is not silent, although its pong follows all that it has to read before
// the ping.
//
// A peer that has received everything once is done. Later frames, such as a pong or a refusal, must
// not delay the end, and peers that connect later have missed nothing.

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
        if (peer.state != PeerState::up || peer.all_delivered) return;
        const std::uint64_t left =
            peer.waiting_frames + peer.endpoint->endpoint->unsent(peer.na_id);
        unsent += left;
        if (peer.endpoint->caps.sent_survives) {
            peer.all_delivered = left == 0;
        } else {
            ++unproven;
        }
        if (needs_heartbeat(peer) && !peer.heartbeat.is_linked()) start_heartbeat(peer);
        if (left < std::exchange(peer.unsent, left)) peer.has_answered = true;
    });
    if (unsent == 0 && final_pings_end_ == TimePoint()) final_pings_end_ = now_ + peer_timeout();
    if (final_pings_end_ == TimePoint() || now_ >= final_pings_end_) return unsent;
    if (now_ < final_pings_due_) return unsent + unproven;
    final_pings_due_ = now_ + round;
    peers_.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        if (peer.state != PeerState::up || peer.all_delivered) return;
        if (!peer.endpoint->caps.sent_survives) send_small(peer, FrameKind::ping, final_ping);
    });
    return unsent + unproven;
}

// ---- liveness --------------------------------------------------------------------------------
// Ticks are counted, not time: after this process was stopped, the first tick counts as one miss
// and not as many, so that a local stall times out no peer.

bool Context::needs_heartbeat(const Peer& peer) const {
    return peer.interest != 0 || (is_ending_ && !peer.all_delivered);
}

void Context::start_heartbeat(Peer& peer) {
    peer.missed_heartbeats = 0;
    peer.has_received = peer.has_answered = false;
    peer.heartbeat.peer = &peer;
    peer.heartbeat.context = this;
    peer.heartbeat.fire = [](base::Timer& timer, TimePoint) {
        auto& beat = static_cast<Peer::Heartbeat&>(timer);
        beat.context->on_heartbeat(*beat.peer);
    };
    timers_.arm(peer.heartbeat, saturating_add(now_, options_.heartbeat_interval));
}

// An upper bound: since the heartbeat before the last one with an answer of the peer.
void Context::record_silence(Peer& peer) {
    if (peer.state != PeerState::up || !peer.heartbeat.is_linked() || peer.has_answered) return;
    peer.silent_for =
        std::min((peer.missed_heartbeats + 2) * options_.heartbeat_interval, peer_timeout());
}

// The provider waits long for a listener that does not answer: too long if there are other
// addresses.
void Context::check_connect_attempt(Peer& peer) {
    const bool has_others = peer.selector && peer.selector->addresses().size() > 1;
    if (!has_others || !peer.na_id || ++peer.missed_heartbeats <= options_.heartbeats_missed_max)
        return;
    Peer::Connection attempt = unbind(peer);
    attempt.close();
    advance_connection(peer, peer.selector->timed_out(),
                       fail(Code::unavailable, "the listener does not answer yet"));
}

void Context::on_heartbeat(Peer& peer) {
    if (!needs_heartbeat(peer)) return;  // The next interest starts it again.
    timers_.arm(peer.heartbeat, saturating_add(now_, options_.heartbeat_interval));
    if (peer.state == PeerState::connecting) return check_connect_attempt(peer);
    if (peer.state != PeerState::up) return;
    for (FrameSink* sink : all_sinks_) sink->on_heartbeat(peer);
    // Unsolicited messages do not prove that messages reach the peer: only an answer does, as long
    // as there is room for a ping.
    const bool received = std::exchange(peer.has_received, false);
    if (std::exchange(peer.has_answered, false) || (received && peer.ping_pending)) {
        peer.missed_heartbeats = 0;
        return;
    }
    // Its pong may be queued behind its other messages.
    if (received && peer.missed_heartbeats != 0 &&
        peer.endpoint->endpoint->has_arrived(peer.na_id)) {
        peer.missed_heartbeats = 0;
    }
    if (++peer.missed_heartbeats <= options_.heartbeats_missed_max) {
        peer.ping_pending = !send_small(peer, FrameKind::ping);
        return;
    }
    ++counters_.timed_out_peers;
    const Duration silence = peer.missed_heartbeats * options_.heartbeat_interval;
    log_.write_rate_limited(LogLevel::warning, now_, "closing " + peer.uri + ": silent");
    peer.endpoint->endpoint->close(peer.na_id);
    on_connection_lost(
        peer, fail(Code::unavailable,
                   "the peer has been silent for " +
                       std::to_string(
                           std::chrono::duration_cast<std::chrono::milliseconds>(silence).count()) +
                       " ms"));
}

}  // namespace weft::core
