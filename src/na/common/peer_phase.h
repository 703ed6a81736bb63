// The phases of a peer, on every transport. A transport passes through those that it needs.
#pragma once

#include <cstdint>

#include "base/state.h"

namespace weft::na {

// resolving:   the host's name is being looked up.
// waiting:     for a slot among the connects to the same address, or for the pause before the next
//              attempt. An accepted connection begins here.
// connecting:  the listener has not answered yet.
// handshaking: one side's hello is sent, the answer of the other side is awaited.
// up:          both sides are identified.
// ending:      the peer has disconnected; what it sent before is still delivered.
// down:        peer_down is queued.
// retired:     the connection is closed, and the peer may still access local memory (sm).
enum class PeerPhase : std::uint8_t {
    resolving,
    waiting,
    connecting,
    handshaking,
    up,
    ending,
    down,
    retired,
};

// The table of legal moves.
constexpr bool can_move(PeerPhase from, PeerPhase to) {
    using enum PeerPhase;
    switch (from) {
        case resolving: return to == waiting || to == connecting || to == down;
        case waiting: return to == resolving || to == connecting || to == handshaking || to == down;
        // A datagram transport is up with the first answer.
        case connecting: return to == waiting || to == handshaking || to == up || to == down;
        // Back to waiting: the listener was busy, or another address of the host is tried.
        case handshaking: return to == waiting || to == up || to == down || to == retired;
        case up: return to == ending || to == down || to == retired;
        case ending: return to == down || to == retired;
        case down: return to == retired;
        case retired: return false;
    }
    return false;
}

using PhaseState = base::State<PeerPhase>;

}  // namespace weft::na
