// What an endpoint keeps of one peer. Plain state: the endpoint moves it through its phases.
#pragma once

#include <memory>
#include <string>

#include "base/assert.h"
#include "base/slot_table.h"
#include "base/unique_fd.h"
#include "na/alternatives.h"
#include "na/connect_pacer.h"
#include "na/listed.h"
#include "na/provider.h"
#include "na/resolution.h"
#include "na/tcp/bulk_stream.h"
#include "na/tcp/greeting.h"
#include "na/tcp/inbox.h"
#include "na/tcp/outbox.h"

namespace weft::na::tcp {

struct Connection;
struct Stranger;

// Below the promise of 3 s for a peer that does not answer. A listener that is there may take
// longer: it is waited for.
inline constexpr Duration handshake_max = 2500ms;

// One socket of the endpoint's epoll set. Linked: it is hot, read without asking epoll first.
struct Lane : Listed {
    enum class Kind : std::uint8_t { stranger, talk, bulk };

    base::UniqueFd socket;
    base::SlotId watch;  // Names it to epoll; none: it is not watched.
    Kind kind = Kind::talk;
    bool full = false;         // Takes no more: asked to be told when it does.
    std::uint32_t misses = 0;  // Reads that brought nothing, in a row.
    std::uint32_t tries = 0;   // Writes that it took nothing of, in a row.
    Connection* connection = nullptr;
    Stranger* stranger = nullptr;

    ~Lane() { WEFT_ASSERT(!watch); }  // Or epoll reports it after its end.
};

// Connected to us and not known yet.
struct Stranger {
    Lane lane;
    Greeting greeting;
    TimePoint since{};
    TimePoint deadline = never;
};

// resolving:  the host's name is being looked up.
// waiting:    for its turn among those that connect to the same address, or for the pause before
//             the next attempt.
// connecting: the talk lane is not connected yet.
// greeting:   our hello is on its way, the welcome is awaited.
// up:         both are known.
// down:       peer_down is queued.
enum class Phase : std::uint8_t { resolving, waiting, connecting, greeting, up, down };

constexpr bool can_move(Phase from, Phase to) {
    if (to == Phase::down) return from != Phase::down;
    // The listener is busy, or another address of the host is tried.
    if (to == Phase::waiting && (from == Phase::greeting || from == Phase::connecting)) return true;
    return static_cast<int>(to) == static_cast<int>(from) + 1;
}

// none:       nobody needed it so far, or it was lost.
// wanted:     tried again until there is room to ask for it (acceptor), or after a pause in which
//             the listener is busy (connector).
// asked:      the connector was asked to make it (acceptor).
// connecting: on its way (connector).
// joining:    its ticket is shown, the answer awaited (connector).
// up
enum class BulkPhase : std::uint8_t { none, wanted, asked, connecting, joining, up };

struct PumpNode : Listed {};
struct UnderWayNode : Listed {};

// Linked: PumpNode while there is something to write, UnderWayNode while a body is.
struct Bulk : PumpNode, UnderWayNode {
    BulkPhase phase = BulkPhase::none;
    Lane lane;
    Greeting greeting;
    TimePoint deadline = never;             // Of becoming up.
    TimePoint retry_at = TimePoint::min();  // Connector, while it is wanted.
    std::uint32_t attempts = 0;             // That a busy listener refused,
    HangUps hang_ups;                       // and those without a word.
    std::uint32_t faults = 0;               // Writes in a row that found no unreadable memory.
    TimePoint moved_at;                     // While it is under way.

    BulkWriter writer;
    BulkReader reader;
    // Of the body that comes in: what it is answered with, or the transfer it belongs to.
    std::uint32_t region = BulkWriter::no_owner;
    Refusal refusal = Refusal::none;

    // In the middle of what comes in or goes out.
    bool is_under_way() const { return lane.full || reader.in_body(); }
};

struct FlushNode : Listed {};
struct WritableNode : Listed {};

// Linked: FlushNode while frames wait for the end of the turn, WritableNode while reserve() owes a
// `writable`.
struct Connection : FlushNode, WritableNode {
    PeerId id;
    Phase phase = Phase::waiting;
    bool incoming = false;
    bool announced = false;          // peer_up was handed out: messages may follow.
    bool said_bye = false;           // The peer.
    std::size_t unacknowledged = 0;  // When has_arrived() was asked last.
    int lost = 0;                    // The error number with which a write failed.
    std::uint64_t sent_turn = 0;     // The last turn in which something left at once.

    Lane talk;
    Outbox out;
    Inbox in;
    PeerInfo info;
    // In use while it is up; the tables of a peer that moves no bulk cost nothing.
    std::unique_ptr<Bulk> bulk;

    SocketName name;                             // That we connect to,
    std::unique_ptr<Alternatives> alternatives;  // where the host has several.
    std::unique_ptr<Resolution> resolution;
    Greeting greeting;
    Ticket ticket;               // Shown, or to be shown, by the bulk lane.
    TimePoint since{};           // Its try began, or was answered last.
    TimePoint deadline = never;  // Until then the host has to show itself.
    TimePoint retry_at = never;  // While waiting, with its turn.
    std::uint32_t attempts = 0;  // That a busy listener refused,
    HangUps hang_ups;            // and those without a word.
    bool has_turn = false;       // Of the endpoint's pacer.

    void move_to(Phase next) {
        WEFT_ASSERT(can_move(phase, next));
        phase = next;
    }
    // What its lists and transfers of ours reach it by has ended before.
    ~Connection() { WEFT_ASSERT(!bulk); }
};

}  // namespace weft::na::tcp
