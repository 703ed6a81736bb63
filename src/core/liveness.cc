#include "core/liveness.h"

#include <algorithm>

#include "base/assert.h"
#include "core/endpoint_slot.h"

namespace weft::core {

bool Liveness::is_needed(const Peer& peer) const {
    return peer.interest != 0 || (is_ending_ && !peer.pulse.all_delivered);
}

void Liveness::start(Peer& peer, TimePoint now) {
    WEFT_ASSERT(!peer.heartbeat.is_linked());
    peer.pulse.missed_heartbeats = 0;
    peer.pulse.has_received = peer.pulse.has_answered = false;
    arm(peer, now);
}

void Liveness::on_up(Peer& peer) const {
    WEFT_ASSERT(peer.state == PeerState::up);
    Pulse& pulse = peer.pulse;
    pulse.silent_for = {};
    pulse.all_delivered = is_ending_;
    pulse.unsent = 0;
    pulse.missed_heartbeats = 0;
    pulse.has_answered = pulse.ping_pending = pulse.pong_pending = false;
}

bool Liveness::beat(Peer& peer) {
    WEFT_DCHECK(peer.state == PeerState::up);
    Pulse& pulse = peer.pulse;
    WEFT_DCHECK(pulse.missed_heartbeats <= options_.heartbeats_missed_max);
    // Unsolicited messages do not prove that messages reach the peer: only an answer does, as long
    // as there is room for a ping.
    const bool received = std::exchange(pulse.has_received, false);
    if (std::exchange(pulse.has_answered, false) || (received && pulse.ping_pending)) {
        pulse.missed_heartbeats = 0;
        return true;
    }
    // Its pong may be queued behind its other messages.
    if (received && pulse.missed_heartbeats != 0 &&
        peer.endpoint->endpoint->has_arrived(peer.na_id)) {
        pulse.missed_heartbeats = 0;
    }
    if (++pulse.missed_heartbeats <= options_.heartbeats_missed_max) {
        pulse.ping_pending = !send_small(peer, FrameKind::ping);
        return true;
    }
    ++timed_out_;
    return false;
}

void Liveness::record_silence(Peer& peer) const {
    const bool is_unheard =
        peer.state == PeerState::up && peer.heartbeat.is_linked() && !peer.pulse.has_answered;
    if (!is_unheard) return;
    peer.pulse.silent_for =
        std::min((peer.pulse.missed_heartbeats + 2) * options_.heartbeat_interval, peer_timeout());
}

void Liveness::on_frame(Peer& peer, FrameHead head) {
    WEFT_ASSERT(head.kind == FrameKind::ping || head.kind == FrameKind::pong);
    if (head.kind == FrameKind::pong) {
        peer.pulse.has_answered = true;
        if (head.aux == final_ping) peer.pulse.all_delivered = true;
    } else if (!send_small(peer, FrameKind::pong, head.aux)) {
        // One pong answers all pings before it. The aux of a final ping stays: without it the peer
        // has no proof that its messages arrived, and its end waits for its next round.
        if (!peer.pulse.pong_pending || head.aux == final_ping) peer.pulse.pong_aux = head.aux;
        peer.pulse.pong_pending = true;
    }
}

void Liveness::on_room(Peer& peer) {
    Pulse& pulse = peer.pulse;
    if (pulse.pong_pending) pulse.pong_pending = !send_small(peer, FrameKind::pong, pulse.pong_aux);
    if (pulse.ping_pending) pulse.ping_pending = !send_small(peer, FrameKind::ping);
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

std::uint64_t Liveness::count_undelivered(base::SlotTable<Peer>& peers, TimePoint now,
                                          std::uint64_t& unproven) {
    std::uint64_t unsent = 0;
    peers.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        Pulse& pulse = peer.pulse;
        if (peer.state != PeerState::up || pulse.all_delivered) return;
        const std::uint64_t left = peer.queue.frames + peer.endpoint->endpoint->unsent(peer.na_id);
        unsent += left;
        if (peer.endpoint->caps.sent_survives) {
            pulse.all_delivered = left == 0;
        } else {
            ++unproven;
        }
        if (is_needed(peer) && !peer.heartbeat.is_linked()) start(peer, now);
        if (left < std::exchange(pulse.unsent, left)) pulse.has_answered = true;
    });
    return unsent;
}

std::uint64_t Liveness::undelivered(base::SlotTable<Peer>& peers, TimePoint now) {
    constexpr Duration round = 100ms;
    is_ending_ = true;
    std::uint64_t unproven = 0;
    const std::uint64_t unsent = count_undelivered(peers, now, unproven);
    if (unsent == 0 && final_pings_end_ == TimePoint()) final_pings_end_ = now + peer_timeout();
    if (final_pings_end_ == TimePoint() || now >= final_pings_end_) return unsent;
    if (now < final_pings_due_) return unsent + unproven;
    final_pings_due_ = now + round;
    peers.for_each([&](auto& entry) {
        Peer& peer = entry.value;
        if (peer.state != PeerState::up || peer.pulse.all_delivered) return;
        if (!peer.endpoint->caps.sent_survives) send_small(peer, FrameKind::ping, final_ping);
    });
    return unsent + unproven;
}

}  // namespace weft::core
