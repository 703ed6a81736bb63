// A peer of a context: its addresses, the state of its connection, its waiting frames.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "core/address_selector.h"
#include "core/deferred.h"
#include "na/in_flight_window.h"
#include "na/provider.h"

namespace weft::rpc {
struct ClientSession;
class ServerSession;
}  // namespace weft::rpc

namespace weft::core {

struct EndpointSlot;

// A frame that the transport has not accepted yet. The bytes follow the object in memory.
struct QueuedFrame : base::ListNode {
    std::uint32_t frame_bytes = 0;
    Bytes frame() { return {reinterpret_cast<std::byte*>(this + 1), frame_bytes}; }
};

struct Peer;

// bulk keeps its entries of a peer in lists of that peer, so that neither its frames nor its end
// walk the entries of other peers.
struct ChunkWaiter : base::ListNode {};   // A transfer that waits for its turn (bulk/transfers.h).
struct PeerTransfer : base::ListNode {};  // A transfer, until the transport has completed it.
struct PeerGrant : base::ListNode {};     // A grant that the peer holds (bulk/regions.h).
struct PeerFetch : base::ListNode {};     // A large body that waits for memory (bulk/staging.h).
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
    std::uint32_t generation = 0;
    friend bool operator==(const PeerRef&, const PeerRef&) = default;
    explicit operator bool() const { return at != nullptr; }
};

enum class PeerState : std::uint8_t {
    idle,        // Known, not connected; the next frame connects.
    connecting,  // Frames wait.
    up,
};

// The transfers of a peer. Linked: in EndpointSlot::chunk_waiters.
struct Traffic : base::ListNode {
    std::uint32_t posted = 0;        // RmaItems in flight.
    na::InFlightWindow window;       // Of their bytes, where Caps::rma_checked is false.
    std::uint32_t completed = 0;     // Ever: shows whether the peer makes progress.
    std::uint32_t waiting = 0;       // Its large bodies that wait for memory.
    std::uint32_t served_round = 0;  // The last round that served these (bulk/staging.cc).
    std::uint32_t granted = 0;       // Grants that it holds.
    struct Blocks {
        std::size_t bytes = 0;
        std::uint32_t count = 0;
    } blocks;  // Memory in use for its large bodies (bulk/block_pool.h).
    base::IntrusiveList<ChunkWaiter> chunk_waiters;
    base::IntrusiveList<PeerTransfer> transfers;
    base::IntrusiveList<PeerGrant> grants;
    base::IntrusiveList<PeerFetch> fetches;
    base::IntrusiveList<PeerBlock> idle_blocks;
    PendingCloses pending_closes;
};

struct Peer {
    PeerRef ref;
    PeerState state = PeerState::idle;
    bool incoming = false;  // It connected to this context: removed when it disconnects.
    // Since the last heartbeat tick: any message arrived; an answer to this context arrived.
    bool has_received = false;
    bool has_answered = false;
    bool ping_pending = false;   // There was no room for a ping,
    bool pong_pending = false;   // or for a pong.
    std::uint16_t pong_aux = 0;  // Of that pong.
    std::uint8_t missed_heartbeats = 0;
    // Calls, handlers and transfers that need this peer to be alive: Context::needs_heartbeat().
    std::uint32_t interest = 0;

    EndpointSlot* endpoint = nullptr;  // While connecting or up.
    na::PeerId na_id;
    std::size_t message_bytes_max = 0;  // While up.
    std::size_t eager_bytes_max = 0;
    // Bodies of calls below this size are written straight to the transport: none while the peer is
    // not up or frames wait. So the hot path has one comparison.
    std::size_t direct_body_end = 0;

    base::IntrusiveList<QueuedFrame> waiting;
    std::size_t waiting_bytes = 0;
    std::uint32_t waiting_frames = 0;

    std::unique_ptr<AddressSelector> selector;  // nullptr for an incoming peer.
    std::size_t next_endpoint = 0;  // Earlier ones were tried for the selector's address.
    bool endpoint_opened = false;   // One was opened for that address.
    struct Connection {
        EndpointSlot* endpoint = nullptr;
        na::PeerId id;
        bool is_up() const;
        void close();
    } kept_connection;            // Beside the connection in progress.
    na::Incarnation incarnation;  // While up.
    std::string uri;              // For logs and errors.

    // State of the layers above, which set and clear it.
    rpc::ClientSession* client_session = nullptr;
    rpc::ServerSession* server_session = nullptr;
    bool session_refused = false;  // As a client: the server has no room for its session.
    bool had_session = false;      // As a client: a connection begins or resumes one session.
    // The session that it resumed has expired here: it may end that session before it reads so.
    bool session_unknown = false;
    bool is_removed = false;  // Closed for good: not used again.
    // Nothing that it must get is in flight: it answered the final ping, or connected later. See
    // Context::undelivered().
    bool all_delivered = false;
    std::uint64_t unsent = 0;  // At the last Context::undelivered().
    // How long it may have been silent when its connection was lost.
    Duration silent_for{};

    struct Heartbeat : base::Timer {
        Peer* peer = nullptr;
        class Context* context = nullptr;
    } heartbeat;
    struct DeferredConnect : Deferred {
        Peer* peer = nullptr;
        class Context* context = nullptr;
    } deferred_connect;

    Traffic traffic;
};

}  // namespace weft::core
