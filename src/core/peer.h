// One partner of a context: where it lives, whether it is connected, what waits for it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "core/deferred.h"
#include "core/path.h"
#include "na/in_flight_window.h"
#include "na/provider.h"

namespace weft::rpc {
struct ClientSession;
class ServerSession;
}  // namespace weft::rpc

namespace weft::core {

struct EndpointSlot;

// A frame that the transport did not take yet. The bytes follow the object in memory.
struct QueuedFrame : base::ListNode {
    std::uint32_t frame_bytes = 0;
    Bytes frame() { return {reinterpret_cast<std::byte*>(this + 1), frame_bytes}; }
};

struct Peer;

// What bulk keeps of a peer is in lists of the peer's own, so that neither its frames nor its end
// walk what others have.
struct Starved : base::ListNode {};       // A transfer that waits for its turn (bulk/transfers.h).
struct PeerTransfer : base::ListNode {};  // A transfer, until the transport is done with it.
struct PeerGrant : base::ListNode {};     // A grant that the peer holds (bulk/regions.h).
struct PeerFetch : base::ListNode {};     // A large body that waits for memory (bulk/staging.h).
struct PeerBlock : base::ListNode {};     // Idle memory that it may read (bulk/block_pool.h).
// Grants of the peer's that go back when there is room for the message. Linked: there are some.
struct Owing : base::ListNode {
    Peer* peer = nullptr;
    std::vector<std::uint64_t> grants;
};

// Names a peer over its whole life, reconnections included; stale once it is forgotten. Peers never
// move and their memory is the context's, so that looking one up is one comparison.
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

// The transfers of a peer. Linked: in the endpoint's list of those that take turns.
struct Traffic : base::ListNode {
    std::uint32_t posted = 0;   // RmaItems under way.
    na::InFlightWindow window;  // Of their bytes, where Caps::rma_checked is false.
    std::uint32_t ended = 0;    // All that ever came to an end: whether the peer moves.
    std::uint32_t waiting = 0;  // Large bodies of it that wait for memory.
    std::uint32_t passed = 0;   // The last round in which these had their turn (bulk/staging.cc).
    std::uint32_t granted = 0;  // Grants that it holds.
    struct Blocks {
        std::size_t bytes = 0;
        std::uint32_t count = 0;
    } blocks;  // Of memory for large bodies that are in use for it (bulk/block_pool.h).
    base::IntrusiveList<Starved> starved;
    base::IntrusiveList<PeerTransfer> transfers;
    base::IntrusiveList<PeerGrant> grants;
    base::IntrusiveList<PeerFetch> fetches;
    base::IntrusiveList<PeerBlock> idle_blocks;
    Owing owing;
};

struct Peer {
    PeerRef ref;
    PeerState state = PeerState::idle;
    bool incoming = false;  // It connected to us: forgotten when it goes down.
    // Since the last heartbeat tick: something arrived; something that answers what we sent.
    bool heard = false;
    bool answered = false;
    bool owes_ping = false;      // There was no room for it,
    bool owes_pong = false;      // nor for this.
    std::uint16_t pong_aux = 0;  // Of that pong.
    std::uint8_t missed = 0;
    // Calls, handlers and transfers that need this peer to be alive: Context::is_needed().
    std::uint32_t interest = 0;

    EndpointSlot* endpoint = nullptr;  // While connecting or up.
    na::PeerId na_id;
    std::size_t message_bytes_max = 0;  // While up.
    std::size_t eager_bytes_max = 0;
    // Bodies of calls below this go straight to the transport: none while not up or while frames
    // wait, so that the hot path has one thing to ask.
    std::size_t direct_body_end = 0;

    base::IntrusiveList<QueuedFrame> waiting;
    std::size_t waiting_bytes = 0;
    std::uint32_t waiting_frames = 0;

    std::unique_ptr<Path> path;     // Where to; none for one that connected to us.
    std::size_t next_endpoint = 0;  // Those before it were tried for the path's address.
    bool opened = false;            // One was opened for it.
    struct Connection {
        EndpointSlot* endpoint = nullptr;
        na::PeerId id;
    } held;                       // Beside the one that is being made.
    na::Incarnation incarnation;  // While up.
    std::string uri;              // For people.

    // What the layers above keep of it; they set and clear it.
    rpc::ClientSession* client_session = nullptr;
    rpc::ServerSession* server_session = nullptr;
    bool is_refused = false;  // As a client: there was no room for its session.
    // The session that it resumed is not known: it may end that before it reads so.
    bool is_unknown = false;
    bool is_removed = false;  // Goes down for good: nobody will use it again.
    // Nothing that it has to have is on its way: it answered the last ping, or came later. See
    // Context::undelivered().
    bool has_all = false;
    std::uint64_t unsent = 0;  // When Context::undelivered() looked last.
    // When its connection was lost: how long it may have said nothing.
    Duration silence{};

    struct Heartbeat : base::Timer {
        Peer* peer = nullptr;
        class Context* context = nullptr;
    } heartbeat;
    struct ConnectLater : Deferred {
        Peer* peer = nullptr;
        class Context* context = nullptr;
    } connect_later;

    Traffic traffic;
};

}  // namespace weft::core
