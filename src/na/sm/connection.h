// What an endpoint keeps of one peer. Plain state: the endpoint moves it through its phases.
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

// calling:  it waits for its turn among those that connect to the same name, or no socket accepted
//           us yet: the server's backlog is full, or it is busy.
// greeting: our packet is sent (connector), or awaited (acceptor).
// up:       both packets exchanged.
// ending:   the peer is gone, what it published before is still handed out.
// down:     peer_down is queued.
// retired:  we dropped the peer; it may still be copying, so its `accessing` word is watched.
enum class Phase : std::uint8_t { calling, greeting, up, ending, down, retired };

constexpr bool can_move(Phase from, Phase to) {
    switch (from) {
        case Phase::calling: return to == Phase::greeting || to == Phase::down;
        case Phase::greeting:
            return to == Phase::up || to == Phase::down || to == Phase::retired ||
                   to == Phase::calling;
        case Phase::up: return to == Phase::ending || to == Phase::down || to == Phase::retired;
        case Phase::ending: return to == Phase::down || to == Phase::retired;
        case Phase::down: return to == Phase::retired;
        case Phase::retired: return false;
    }
    return false;
}

struct Connection {
    // Every poll.
    RingReader reader;
    PeerId id;
    Phase phase = Phase::calling;
    bool wants_writable = false;
    std::uint32_t empty_polls = 0;
    std::uint32_t place = 0;  // In the endpoint's Watchlist, or among the retired.

    // Every message.
    RingWriter writer;
    std::uint32_t commits = 0;  // Since the last flush.
    bool unpublished = false;
    Connection* next_committed = nullptr;
    std::uint32_t doze_woken = 0;         // The doze of the peer that we ended.
    std::uint32_t message_bytes_max = 0;  // Of info while up, else 0.
    RegionView regions;
    base::UniqueFd socket;
    std::shared_ptr<ArenaView> arena;
    PeerMemory memory;

    // Now and then.
    std::uint64_t taken_before = 0;  // By the reader when its empty polls were counted last.
    PeerInfo info;
    Segment segment;
    Side side = Side::connector;
    bool peer_gone = false;
    std::atomic<std::uint64_t> final_tail{0};
    std::string last_words;    // How the socket ended.
    std::uint64_t serial = 0;  // Names it to epoll; never reused.
    std::string name;          // That we connect to.
    TimePoint since{};         // Of an incoming one.
    TimePoint deadline = never;
    TimePoint retry_at = never;  // While calling, with its turn.
    std::uint32_t attempts = 0;  // That the server had no place for,
    HangUps hang_ups;            // and those without a word.
    bool has_turn = false;       // Of the endpoint's pacer.

    void move_to(Phase next) {
        WEFT_ASSERT(can_move(phase, next));
        phase = next;
        message_bytes_max =
            next == Phase::up ? static_cast<std::uint32_t>(info.message_bytes_max) : 0;
    }
    // The region of ours that the peer may be inside of right now, plus 1; or no_region.
    std::uint32_t accessing() const {
        return segment && !peer_gone ? look_inside(reader.words().accessing) : no_region;
    }
};

}  // namespace weft::na::sm
