// One transport of a context, with its peers.
#pragma once

#include <memory>
#include <vector>

#include "base/assert.h"
#include "core/frame.h"
#include "core/peer.h"

namespace weft::core {

// Sets of endpoints are kept as bits (bulk/regions.h).
inline constexpr std::size_t endpoints_max = 64;

struct EndpointSlot {
    std::unique_ptr<na::Endpoint> endpoint;
    na::Caps caps;
    std::vector<Peer*> peers;  // By na::PeerId::index.
    std::uint32_t index = 0;
    std::uint32_t idle_polls = 0;
    TimePoint polled_at;                         // With several endpoints.
    bool unflushed = false;                      // A commit of this turn waits for flush().
    na::Endpoint* parent_endpoint = nullptr;     // In a forked child; never destroyed.
    base::IntrusiveList<Traffic> chunk_waiters;  // Peers that take turns while there is no room.

    void commit(std::size_t bytes) { unflushed |= endpoint->commit(bytes); }
    void flush() {
        unflushed = false;
        endpoint->flush();
    }
    // nullptr: no peer has that connection.
    Peer* peer_of(na::PeerId id) const { return id.index < peers.size() ? sender_of(id) : nullptr; }
    // The same for a message: its sender was announced before, so the index is valid.
    Peer* sender_of(na::PeerId id) const {
        WEFT_DCHECK(id.index < peers.size());
        Peer* peer = peers[id.index];
        return peer && peer->na_id == id ? peer : nullptr;
    }
    // Before any message of that connection: sender_of() relies on it.
    void announce(na::PeerId id) {
        if (peers.size() <= id.index) peers.resize(id.index + 1);
    }
};

// A frame without a body. False: the transport is full, or the peer is not up.
inline bool send_small(Peer& peer, FrameKind kind, std::uint16_t aux = 0) {
    if (peer.state != PeerState::up) return false;
    WEFT_DCHECK(peer.endpoint && peer.na_id);
    std::byte* to = peer.endpoint->endpoint->reserve(peer.na_id, sizeof(FrameHead));
    if (!to) return false;
    base::store(to, FrameHead{kind, 0, aux, sizeof(FrameHead)});
    peer.endpoint->commit(sizeof(FrameHead));
    return true;
}

}  // namespace weft::core
