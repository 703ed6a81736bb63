// The state of one peer of an endpoint. Plain data: the endpoint moves it through its phases.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "na/connect_pacer.h"
#include "na/sm/arena_view.h"
#include "na/sm/handshake.h"
#include "na/sm/region_table.h"
#include "na/sm/segment.h"

namespace weft::na::sm {

// connecting:  waiting for a slot among the connects to the same name, or not accepted yet: the
//              server's backlog is full, or it is busy.
// handshaking: the local packet is sent (connector), or the peer's is awaited (acceptor).
// up:          both packets are exchanged.
// ending:      the peer has disconnected; its published records are still delivered.
// down:        peer_down is queued.
// retired:     this side closed the connection; the peer may still be copying, so its `accessing`
//              word is watched.
enum class PeerPhase : std::uint8_t { connecting, handshaking, up, ending, down, retired };

constexpr bool can_move(PeerPhase from, PeerPhase to) {
    switch (from) {
        case PeerPhase::connecting: return to == PeerPhase::handshaking || to == PeerPhase::down;
        case PeerPhase::handshaking:
            return to == PeerPhase::up || to == PeerPhase::down || to == PeerPhase::retired ||
                   to == PeerPhase::connecting;
        case PeerPhase::up:
            return to == PeerPhase::ending || to == PeerPhase::down || to == PeerPhase::retired;
        case PeerPhase::ending: return to == PeerPhase::down || to == PeerPhase::retired;
        case PeerPhase::down: return to == PeerPhase::retired;
        case PeerPhase::retired: return false;
    }
    return false;
}

struct Connection {
    // Used in every poll.
    RingReader reader;
    PeerId id;
    PeerPhase phase = PeerPhase::connecting;
    bool wants_writable = false;
    std::uint32_t empty_polls = 0;
    std::uint32_t watch_index = 0;  // In the endpoint's Watchlist, or among the retired.

    // Used for every message.
    RingWriter writer;
    std::uint32_t commits = 0;  // Since the last flush.
    bool unpublished = false;
    Connection* next_committed = nullptr;
    std::uint32_t doze_woken = 0;         // The last doze of the peer that was ended.
    std::uint32_t message_bytes_max = 0;  // Of info while up, else 0.
    RegionView regions;
    base::UniqueFd socket;
    std::shared_ptr<ArenaView> arena;
    PeerMemory memory;

    // Used rarely.
    std::uint64_t taken_before = 0;  // The reader's position at the last check.
    PeerInfo info;
    Segment segment;
    Side side = Side::connector;
    bool peer_gone = false;
    std::atomic<std::uint64_t> final_tail{0};
    std::string socket_end_reason;  // How the socket ended.
    std::uint64_t serial = 0;       // Its id in epoll; never reused.
    std::string name;               // The name to connect to.
    TimePoint since{};              // When an incoming connection was accepted.
    TimePoint deadline = never;
    TimePoint retry_at = never;     // While connecting, with a pacer slot.
    std::uint32_t attempts = 0;     // Attempts that were refused for lack of room,
    HangUps hang_ups;               // and those closed without a refusal.
    bool holds_pacer_slot = false;  // Of the endpoint's pacer.

    void move_to(PeerPhase next) {
        WEFT_ASSERT(can_move(phase, next));
        phase = next;
        message_bytes_max =
            next == PeerPhase::up ? static_cast<std::uint32_t>(info.message_bytes_max) : 0;
    }
    // The local region that the peer may be accessing now, plus 1; or no_region.
    std::uint32_t accessing() const {
        return segment && !peer_gone ? read_accessing(reader.words().accessing) : no_region;
    }
};

}  // namespace weft::na::sm
