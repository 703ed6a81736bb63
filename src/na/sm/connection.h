// The state of one peer of an endpoint. Plain data: the endpoint moves it through its phases.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "na/common/connect_attempt.h"
#include "na/common/peer_phase.h"
#include "na/common/placement.h"
#include "na/sm/arena_view.h"
#include "na/sm/handshake.h"
#include "na/sm/region_table.h"
#include "na/sm/segment.h"

namespace weft::na::sm {

// How the socket of a connection ended.
struct SocketEnd {
    bool peer_gone = false;
    std::atomic<std::uint64_t> final_tail{0};
    std::string reason;
};

struct Connection {
    // Used in every poll.
    RingReader reader;
    PeerId id;
    PhaseState phase{PeerPhase::waiting};
    bool wants_writable = false;
    std::uint32_t empty_polls = 0;
    std::uint32_t watch_index = 0;  // In the endpoint's Watchlist, or among the retired.

    // Used for every message.
    RingWriter writer;
    std::uint32_t commits = 0;  // Since the last flush.
    bool unpublished = false;
    Connection* next_committed = nullptr;
    std::uint32_t sleep_woken = 0;        // The last sleep of the peer that was ended.
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
    SocketEnd end;
    std::uint64_t serial = 0;  // Its id in epoll; never reused.
    struct Target {
        std::string name;
        std::uint16_t wanted = 0;  // Address::wanted.
    } target;                      // Of a connect.
    Placement::Place place;        // Of an incoming peer.
    ConnectAttempt connect;

    void move_to(PeerPhase next) {
        phase.move_to(next);
        message_bytes_max =
            next == PeerPhase::up ? static_cast<std::uint32_t>(info.message_bytes_max) : 0;
    }
    // The local region that the peer may be accessing now, plus 1; or no_region.
    std::uint32_t accessing() const {
        return segment && !end.peer_gone ? read_accessing(reader.words().accessing) : no_region;
    }
};

// An incoming peer on its way to the endpoint of another context.
struct PassedPeer {
    base::UniqueFd socket;
    HelloPacket hello_packet;
    Placement::Place place;
    TimePoint deadline = never;
};

}  // namespace weft::na::sm
