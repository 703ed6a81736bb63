// A peer of a context: its addresses, the state of its connection, its waiting frames.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "base/state.h"
#include "base/timer_wheel.h"
#include "core/address_selector.h"
#include "core/deferred.h"
#include "na/in_flight_window.h"
#include "na/provider.h"

namespace weft::core {

struct EndpointSlot;
struct Peer;

// A frame that the transport has not accepted yet. The bytes follow the object in memory.
struct QueuedFrame : base::ListNode {
    std::uint32_t frame_bytes = 0;
    Bytes frame() { return {reinterpret_cast<std::byte*>(this + 1), frame_bytes}; }
};

// bulk keeps its entries of a peer in lists of that peer, so that neither its frames nor its end
// walk the entries of other peers.
struct ChunkWaiter : base::ListNode {};   // A transfer that waits for its turn (bulk/transfers.h).
struct PeerTransfer : base::ListNode {};  // A transfer, until the transport has completed it.
struct PeerGrant : base::ListNode {};     // A grant that the peer holds (bulk/regions.h).
struct PeerFetch : base::ListNode {};     // A large body that waits for memory (bulk/rendezvous.h).
struct PeerBlock : base::ListNode {};     // Idle memory that the peer may read (bulk/block_pool.h).
// Grants of the peer to be returned by bulk_close when there is room for it. Linked: not empty.
struct PendingCloses : base::ListNode {
    Peer* peer = nullptr;
    std::vector<std::uint64_t> grants;
};

// Refers to a peer over its whole life, reconnections included; stale once it is removed. Peers
// never move, and the context owns their memory, so a lookup is one comparison.
struct PeerRef {
    Peer* at = nullptr;
    std::uint32_t generation = 0;  // 0: there was no room for the peer.
    friend bool operator==(const PeerRef&, const PeerRef&) = default;
    explicit operator bool() const { return at != nullptr; }
};

enum class PeerState : std::uint8_t {
    idle,        // Known, not connected; the next frame connects.
    connecting,  // Frames wait.
    up,
};
constexpr bool can_move(PeerState from, PeerState to) {
    switch (to) {
        case PeerState::idle: return from != PeerState::idle;
        case PeerState::connecting: return from == PeerState::idle;
        case PeerState::up: return from != PeerState::up;  // An incoming peer was idle.
    }
    return false;
}

// The transfers of a peer. Linked: in EndpointSlot::chunk_waiters.
struct Traffic : base::ListNode {
    // ---- posted to the transport
    std::uint32_t posted = 0;     // RmaItems in flight.
    na::InFlightWindow window;    // Of their bytes, where Caps::rma_checked is false.
    std::uint32_t completed = 0;  // Ever: shows whether the peer makes progress.
    base::IntrusiveList<ChunkWaiter> chunk_waiters;
    base::IntrusiveList<PeerTransfer> transfers;

    // ---- large bodies
    std::uint32_t waiting = 0;       // Its bodies that wait for memory.
    std::uint32_t served_round = 0;  // The last round that served these (bulk/rendezvous.cc).
    struct Blocks {
        std::size_t bytes = 0;
        std::uint32_t count = 0;
    } blocks;  // Memory in use for its bodies (bulk/block_pool.h).
    base::IntrusiveList<PeerFetch> fetches;
    base::IntrusiveList<PeerBlock> idle_blocks;

    // ---- grants that it holds
    std::uint32_t granted = 0;
    base::IntrusiveList<PeerGrant> grants;
    PendingCloses pending_closes;
};

// Frames that wait for the connection or for room in the transport (core/send_queues.h).
struct SendQueue {
    base::IntrusiveList<QueuedFrame> waiting;
    std::size_t bytes = 0;
    std::uint32_t frames = 0;
};

// Whether the peer is alive, and what of a pending end has arrived there (core/liveness.h).
struct Pulse {
    // Since the last heartbeat: any message arrived; an answer to this context arrived.
    bool has_received = false;
    bool has_answered = false;
    bool ping_pending = false;   // There was no room for a ping,
    bool pong_pending = false;   // or for a pong.
    std::uint16_t pong_aux = 0;  // Of that pong.
    std::uint8_t missed_heartbeats = 0;
    // Nothing that it must get is in flight: it answered the final ping, or connected later.
    bool all_delivered = false;
    std::uint64_t unsent = 0;  // At the last Liveness::undelivered().
    Duration silent_for{};     // At most, when its connection was lost.
};

struct PeerConnection {
    EndpointSlot* endpoint = nullptr;
    na::PeerId id;
    const na::PeerInfo* info() const;  // nullptr: it is not up.
    void close();
};

// The search for an address that reaches the peer.
struct ConnectAttempt {
    std::unique_ptr<AddressSelector> selector;  // nullptr for an incoming peer.
    std::size_t next_endpoint = 0;  // Earlier ones were tried for the selector's address.
    bool endpoint_opened = false;   // One was opened for that address.
    PeerConnection kept;            // Beside the connection in progress.
    // Of the server, as its refusals showed: the most, since an address may reach only one. 0: no
    // connection was to a context that is not there.
    std::uint16_t contexts = 0;
    // The last one that did not come up, or had no room for a session.
    TimePoint failed_at = TimePoint::min();
};

// What a layer above keeps for a peer, as the client or the server of it; derived there.
struct ClientState {};
struct ServerState {};
// The session that a connected client has asked for.
enum class SessionRequest : std::uint8_t {
    none,
    accepted,  // A connection begins or resumes one session.
    refused,   // There was no room for it.
    expired,   // Unknown here: the client may end it before it reads so.
};
constexpr bool can_move(SessionRequest from, SessionRequest to) {
    return to == SessionRequest::none || from == SessionRequest::none ||
           from == SessionRequest::expired;
}

// Receives the timers and deferred work of peers.
class PeerOwner {
  public:
    virtual void on_heartbeat(Peer& peer) = 0;
    virtual void start_connecting(Peer& peer) = 0;

  protected:
    ~PeerOwner() = default;
};

// The context of a server that a connection is to be with.
struct WantedContext {
    std::uint16_t number = 0;  // Plus 1; 0: any.
    bool is_required = true;   // False: another one serves as well.
};

struct Peer {
    // ---- constant while it is in the table
    PeerRef ref;
    bool incoming = false;  // It connected to this context: removed when it disconnects.
    PeerOwner* owner = nullptr;

    // ---- its connection
    base::State<PeerState> state{PeerState::idle};
    bool is_removed = false;           // Closed for good: not used again.
    EndpointSlot* endpoint = nullptr;  // While connecting or up.
    na::PeerId na_id;
    std::size_t message_bytes_max = 0;  // While up.
    std::size_t eager_bytes_max = 0;
    // Bodies of calls below this size are written straight to the transport: none while the peer is
    // not up or frames wait. So the hot path has one comparison.
    std::size_t direct_body_end = 0;
    na::Incarnation incarnation;  // While up.
    struct Remote {
        WantedContext chosen;  // By the channel.
        WantedContext wanted;  // The next time: `chosen`, or where the session of this side is.
        // The connection, or the attempt, is for `wanted` because of the session there, which the
        // next life of the server does not have: that takes it on any context. Else the channel
        // requires, or prefers, the one that it has chosen.
        bool returns = false;
        bool has_to_return() const {
            const bool is_named = chosen.number != 0 && (chosen.is_required || !wanted.is_required);
            return wanted.number != 0 && !is_named;
        }
        // As of the last connection.
        std::uint16_t contexts = 0;  // 0: there was none.
        std::uint16_t context = 0;   // The one that is connected.
        // Where `contexts`, or that of a refusal, is written to, for threads that do not turn this
        // context; nullptr: none.
        std::shared_ptr<std::atomic<std::uint16_t>> report;
    } remote;         // The contexts of the peer's runtime.
    std::string uri;  // For logs and errors.
    ConnectAttempt attempt;
    struct DeferredConnect : Deferred {
        Peer* peer = nullptr;
    } deferred_connect;

    // ---- its frames and its life
    SendQueue queue;
    // Calls, handlers and transfers that need this peer to be alive.
    std::uint32_t interest = 0;
    Pulse pulse;
    struct Heartbeat : base::Timer {
        Peer* peer = nullptr;
    } heartbeat;

    // ---- of the layers above, which set and clear it
    ClientState* client = nullptr;
    ServerState* server = nullptr;
    base::State<SessionRequest> session_request{SessionRequest::none};
    Traffic traffic;
};

}  // namespace weft::core
