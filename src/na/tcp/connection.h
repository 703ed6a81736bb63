// The state of one peer of an endpoint. Plain data: the endpoint moves it through its phases.
#pragma once

#include <memory>
#include <string>

#include "base/assert.h"
#include "base/slot_table.h"
#include "base/unique_fd.h"
#include "na/address_candidates.h"
#include "na/common/connect_attempt.h"
#include "na/common/peer_phase.h"
#include "na/common/placement.h"
#include "na/connect_pacer.h"
#include "na/listed.h"
#include "na/provider.h"
#include "na/resolution.h"
#include "na/tcp/bulk_stream.h"
#include "na/tcp/handshake.h"
#include "na/tcp/inbox.h"
#include "na/tcp/outbox.h"

namespace weft::na::tcp {

struct Connection;
struct PendingPeer;

// Below the promised 3 s for a peer that does not answer. A listener that exists may take longer:
// the connect waits for it.
inline constexpr Duration handshake_max = 2500ms;

// One socket of the endpoint's epoll set. Linked: it is hot, read without polling epoll first.
struct PolledSocket : Listed {
    enum class Kind : std::uint8_t { pending, messages, bulk };

    base::UniqueFd socket;
    base::SlotId watch;  // Its id in epoll; none: it is not watched.
    Kind kind = Kind::messages;
    bool full = false;         // Takes no more bytes: epoll reports when it does.
    std::uint32_t misses = 0;  // Consecutive reads without a byte.
    std::uint32_t tries = 0;   // Consecutive writes that sent nothing.
    Connection* connection = nullptr;
    PendingPeer* pending_peer = nullptr;

    ~PolledSocket() { WEFT_ASSERT(!watch); }  // Else epoll reports it after its end.
};

// An accepted connection that is not identified yet.
struct PendingPeer {
    PolledSocket polled;
    HandshakeReader handshake;
    Placement::Place place;  // Once its hello is read.
    TimePoint since{};
    TimePoint deadline = never;
};

// The same on its way to the endpoint of another context, with a whole handshake frame.
struct PassedPeer {
    base::UniqueFd socket;
    HandshakeReader handshake;
    Placement::Place place;
    TimePoint deadline = never;
};

// none:       not needed so far, or lost.
// wanted:     retried until there is room for the request to make it (acceptor), or after a pause
//             since the listener is busy (connector).
// requested:  the connector has to make it (acceptor).
// connecting: the socket is connecting (connector).
// joining:    its ticket is sent, the answer is awaited (connector).
// up
enum class BulkPhase : std::uint8_t { none, wanted, requested, connecting, joining, up };

// The table of legal moves. A lane that is lost ends: the next one begins at `none`.
constexpr bool can_move(BulkPhase from, BulkPhase to) {
    using enum BulkPhase;
    switch (from) {
        case none: return to == wanted || to == up;
        case wanted: return to == requested || to == connecting || to == up;
        case requested: return to == up;
        case connecting: return to == joining;
        case joining: return to == wanted || to == up;
        case up: return false;
    }
    return false;
}

struct PumpNode : Listed {};
struct UnderWayNode : Listed {};

// Linked: PumpNode while there is something to write, UnderWayNode while a body is in progress.
struct Bulk : PumpNode, UnderWayNode {
    base::State<BulkPhase> phase{BulkPhase::none};
    PolledSocket polled;
    HandshakeReader handshake;
    TimePoint deadline = never;             // For becoming up.
    TimePoint retry_at = TimePoint::min();  // Connector, while `wanted`.
    std::uint32_t attempts = 0;             // Attempts that a busy listener refused,
    HangUps hang_ups;                       // and those closed without a refusal.

    // In use while the bulk lane is up.
    std::uint32_t faults = 0;  // Consecutive EFAULTs without unreadable memory.
    TimePoint moved_at;        // Last progress of a body.
    BulkWriter writer;
    BulkReader reader;
    // Of the incoming body: the local region that it is written to, and the refusal for its done.
    std::uint32_t region = BulkWriter::no_owner;
    Refusal refusal = Refusal::none;

    // In the middle of an incoming or outgoing body.
    bool is_under_way() const { return polled.full || reader.in_body(); }
};

struct FlushNode : Listed {};
struct WritableNode : Listed {};

// Linked: FlushNode while frames wait for the end of the turn, WritableNode while a `writable` is
// due.
struct Connection : FlushNode, WritableNode {
    PeerId id;
    PhaseState phase{PeerPhase::waiting};
    bool incoming = false;
    bool announced = false;          // peer_up was returned: messages may follow.
    bool received_bye = false;       // The peer announced its end.
    std::size_t unacknowledged = 0;  // At the last has_arrived().
    int write_error = 0;             // The error number with which a write failed.
    std::uint64_t sent_turn = 0;     // The last turn with a send at once.

    // Its messages.
    PolledSocket message_socket;
    Outbox out;
    Inbox in;
    PeerInfo info;
    Placement::Place place;  // Of an incoming peer.
    // In use while the connection is up; a peer without transfers costs no tables.
    std::unique_ptr<Bulk> bulk;

    SocketName name;           // The address to connect to; the bulk lane connects to it, too.
    std::uint16_t wanted = 0;  // Address::wanted.
    Ticket ticket;             // Of the bulk lane, sent or expected.

    // In use until the connection is up.
    std::unique_ptr<AddressCandidates> candidates;  // `name` is one of these, if there are several.
    std::unique_ptr<Resolution> resolution;
    HandshakeReader handshake;
    ConnectAttempt connect;

    // Its lists and local transfers refer to `bulk`: it is closed before.
    ~Connection() { WEFT_ASSERT(!bulk); }
};

}  // namespace weft::na::tcp
