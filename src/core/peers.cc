// Connecting, losing and watching peers.
#include <algorithm>

#include "base/assert.h"
#include "core/context.h"

namespace weft::core {

Result<PeerRef> Context::add_peer(std::vector<na::Address> candidates) {
    std::string available;
    auto unusable = [&](const na::Address& address) {
        return std::none_of(endpoints_.begin(), endpoints_.end(), [&](const auto& slot) {
            return slot->endpoint->scheme() == address.scheme;
        });
    };
    if (candidates.empty()) return fail(Code::invalid_argument, "no address to connect to");
    if (closed_) return fail(Code::unavailable, "the runtime is shutting down");
    const std::string first = candidates.front().uri();
    candidates.erase(std::remove_if(candidates.begin(), candidates.end(), unusable),
                     candidates.end());
    if (candidates.empty()) {
        for (const auto& slot : endpoints_) {
            available += (available.empty() ? "" : ", ") + std::string(slot->endpoint->scheme());
        }
        return fail(Code::unimplemented, "no transport here can reach " + first + "; available: " +
                                             (available.empty() ? "none" : available));
    }
    auto* entry = peers_.take();
    if (!entry) return fail(Code::resource_exhausted, "too many peers");
    Peer& peer = entry->value;
    peer.ref = {&peer, entry->generation};
    peer.incoming = false;
    peer.interest = 0;
    peer.state = PeerState::idle;
    peer.candidates = std::move(candidates);
    peer.uri = peer.candidates.front().uri();
    return peer.ref;
}

void Context::connect(Peer& peer) {
    WEFT_DCHECK(peer.state == PeerState::idle);
    peer.state = PeerState::connecting;
    peer.candidate = 0;
    peer.candidate_endpoint = 0;
    peer.candidate_opened = false;
    peer.connect_later.peer = &peer;
    peer.connect_later.context = this;
    peer.connect_later.run = [](Deferred& work) {
        auto& later = static_cast<Peer::ConnectLater&>(work);
        later.context->try_candidates(*later.peer, fail(Code::unavailable, "no usable address"));
    };
    defer(peer.connect_later);
}

// Starts with `peer.candidate`; the peer is lost when none is left.
void Context::try_candidates(Peer& peer, Status last) {
    for (; peer.candidate < peer.candidates.size(); ++peer.candidate, peer.candidate_endpoint = 0) {
        const na::Address& address = peer.candidates[peer.candidate];
        while (peer.candidate_endpoint < endpoints_.size()) {
            const auto& slot = endpoints_[peer.candidate_endpoint++];
            if (slot->endpoint->scheme() != address.scheme) continue;
            Result<na::PeerId> id = slot->endpoint->connect(address, now_);
            if (!id) {
                last = std::move(id).status();
                continue;
            }
            peer.uri = address.uri();
            peer.endpoint = slot.get();
            peer.na_id = *id;
            if (slot->peers.size() <= id->index) slot->peers.resize(id->index + 1);
            slot->peers[id->index] = &peer;
            slot->idle_polls = 0;
            return;
        }
    }
    lost(peer, last);
}

void Context::on_up(EndpointSlot& slot, const na::Event& event) {
    // Before anything can end this: sender_of() relies on it for the messages that follow.
    if (slot.peers.size() <= event.peer.index) slot.peers.resize(event.peer.index + 1);
    const na::PeerInfo* info = slot.endpoint->info(event.peer);
    if (!info) return;  // Gone already: its peer_down is in the same batch.
    Peer* peer = nullptr;
    if (event.incoming) {
        auto* entry = peers_.take();
        if (!entry) {
            slot.endpoint->close(event.peer);
            return;
        }
        peer = &entry->value;
        peer->ref = {peer, entry->generation};
        peer->incoming = true;
        peer->interest = 0;
        peer->candidates.clear();
        peer->endpoint = &slot;
        peer->na_id = event.peer;
        peer->uri = info->uri.empty() ? std::string(slot.endpoint->scheme()) + " peer" : info->uri;
        slot.peers[event.peer.index] = peer;
    } else {
        peer = peer_of(slot, event.peer);
        if (!peer) return;
    }
    peer->state = PeerState::up;
    peer->incarnation = info->incarnation;
    peer->message_bytes_max = info->message_bytes_max;
    peer->eager_bytes_max = info->eager_bytes_max;
    update_direct(*peer);
    peer->missed = 0;
    if (log_.enabled(LogLevel::debug)) log_.debug("connected to " + peer->uri);
    drain(*peer);
    for (FrameSink* sink : all_sinks_) sink->on_peer_up(*peer);
}

// Whether an endpoint that was not tried yet speaks the scheme of the peer's present candidate.
bool Context::has_endpoint_left(const Peer& peer) const {
    const std::string& scheme = peer.candidates[peer.candidate].scheme;
    return std::any_of(endpoints_.begin() + static_cast<std::ptrdiff_t>(peer.candidate_endpoint),
                       endpoints_.end(),
                       [&](const auto& slot) { return slot->endpoint->scheme() == scheme; });
}

// Another endpoint may reach what this one can't, a new one if need be; what nobody serves, none
// does. False: there is nothing left to try.
bool Context::try_next(EndpointSlot& slot, Peer& peer, const Status& why) {
    const bool elsewhere = why.code() == Code::unimplemented;
    if (elsewhere && !has_endpoint_left(peer) && opener_ &&
        !std::exchange(peer.candidate_opened, true)) {
        opener_(peer.candidates[peer.candidate]);
    }
    if (!elsewhere || !has_endpoint_left(peer)) {
        if (peer.candidate + 1 == peer.candidates.size()) return false;
        ++peer.candidate;
        peer.candidate_endpoint = 0;
        peer.candidate_opened = false;
    }
    slot.peers[peer.na_id.index] = nullptr;
    peer.na_id = {};
    log_.info(peer.uri + " is not usable (" + std::string(why.text()) + "), trying " +
              peer.candidates[peer.candidate].uri());
    try_candidates(peer, why);
    return true;
}

void Context::on_down(EndpointSlot& slot, Peer& peer, const Status& why) {
    if (peer.state == PeerState::connecting && try_next(slot, peer, why)) return;
    lost(peer, why);
}

void Context::disconnect(Peer& peer) {
    if (peer.na_id) {
        peer.endpoint->peers[peer.na_id.index] = nullptr;
        peer.na_id = {};
    }
    peer.endpoint = nullptr;
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
    disconnect(peer);
    if (log_.enabled(LogLevel::debug)) log_.debug("lost " + peer.uri + ": " + why.to_string());
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

void Context::shutdown(const Status& why) noexcept {
    closed_ = true;
    peers_.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        peer.candidates.clear();
        if (peer.state == PeerState::idle) return;
        if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
        lost(peer, why);
    });
    for (auto& slot : endpoints_) slot->endpoint->flush();
    endpoints_.clear();
    only_ = quick_ = nullptr;
}

void Context::drop_connection(Peer& peer, const Status& why) {
    if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
    lost(peer, why);
}

void Context::remove_peer(Peer& peer, const Status& why) {
    WEFT_ASSERT(find(peer.ref) == &peer);
    const PeerRef ref = peer.ref;
    if (peer.na_id) peer.endpoint->endpoint->close(peer.na_id);
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

// ---- liveness --------------------------------------------------------------------------------
// Ticks are counted, not time: when our own process was stopped, the first tick afterwards counts
// as one miss and not as many, so that our own stall accuses nobody.

void Context::start_heartbeat(Peer& peer) {
    peer.missed = 0;
    peer.heard = false;
    peer.heartbeat.peer = &peer;
    peer.heartbeat.context = this;
    peer.heartbeat.fire = [](base::Timer& timer, TimePoint) {
        auto& beat = static_cast<Peer::Heartbeat&>(timer);
        beat.context->on_heartbeat(*beat.peer);
    };
    timers_.arm(peer.heartbeat, saturating_add(now_, options_.heartbeat_interval));
}

void Context::on_heartbeat(Peer& peer) {
    if (peer.interest == 0) return;  // The next interest starts it again.
    timers_.arm(peer.heartbeat, saturating_add(now_, options_.heartbeat_interval));
    if (peer.state != PeerState::up) return;  // The provider times connecting.
    if (std::exchange(peer.heard, false)) {
        peer.missed = 0;
        return;
    }
    if (++peer.missed <= options_.heartbeats_missed_max) {
        send_small(peer, FrameKind::ping);
        return;
    }
    ++counters_.silent_peers;
    const auto silence = peer.missed * options_.heartbeat_interval;
    log_.warning("closing " + peer.uri + ": silent");
    peer.endpoint->endpoint->close(peer.na_id);
    lost(peer,
         fail(Code::unavailable,
              "the peer has been silent for " +
                  std::to_string(
                      std::chrono::duration_cast<std::chrono::milliseconds>(silence).count()) +
                  " ms"));
}

}  // namespace weft::core
