// What an endpoint knows of its peers, of the queue pairs that lead to them, and of transfers.
#pragma once

#include <array>
#include <memory>

#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "na/connect_pacer.h"
#include "na/provider.h"
#include "na/resolution.h"
#include "na/verbs/card.h"
#include "na/verbs/registration_cache.h"
#include "na/verbs/wire.h"

namespace weft::na::verbs {

// A message on its way out. While its lane has it: `sequence` of its work request.
struct SendSlot : base::ListNode {
    std::byte* message = nullptr;
    std::uint32_t used = 0;
    std::uint32_t sequence = 0;
    Kind kind = Kind::data;
};
using SendQueue = base::IntrusiveList<SendSlot>;

// A queue pair that sends. Its completions and the events of its connection find it by its id.
// Linked: one of transfers, by its last use.
struct Lane : base::ListNode {
    bool leaving = false;  // Of a peer that is gone: its last messages are on their way,
    bool ended = false;    // or are flushed. Behind that it is dropped when it is due.
    base::SlotId peer;
    Owned<ibv_qp> pair;
    Owned<rdma_cm_id> connection;   // messages only. Declared behind `pair`: it ends first.
    std::uint32_t posted = 0;       // Work requests, ever;
    std::uint32_t completed = 0;    // those known to be done, in order.
    std::uint32_t unsignalled = 0;  // Since the last that gives a completion.
    SendQueue in_flight;            // messages: slots whose memory the card may still read.
    TimePoint due = never;          // leaving: not any longer in this state.
    std::uint32_t which = 0;        // transfers: of the peer's lanes.
};
using LaneTable = base::SlotTable<Lane>;
using LaneEntry = LaneTable::Entry;

enum class PeerState : std::uint8_t {
    resolving,   // The name of the host; or a pause, as the listener was busy.
    connecting,  // The steps of rdma_cm.
    greeting,    // Connected; its hello has not come.
    up,
};

struct AttentionNode : base::ListNode {};
struct FlushNode : base::ListNode {};
struct WritableNode : base::ListNode {};

// One RmaItem that was accepted.
struct Transfer : base::ListNode {
    RmaItem item;
    Registration* kept = nullptr;  // What `item.local` is in, while it is posted;
    Owned<ibv_mr> memory;          // or its own, where nothing is kept of it.
    std::uint32_t sequence = 0;    // Of its work request.
};
using TransferTable = base::SlotTable<Transfer>;
using TransferQueue = base::IntrusiveList<Transfer>;

// A queue pair that could not be destroyed: the card may still touch what hangs on it, which stays
// as it is until the queue pair goes.
struct StuckPair {
    Owned<ibv_qp> pair;
    LaneEntry* lane = nullptr;  // With the messages that it has in flight,
    TransferQueue transfers;    // and transfers, which have not ended.
};

// A queue pair for transfers of ours with one peer.
struct Asking {
    LaneEntry* lane = nullptr;
    bool up = false;             // The peer has its end of it.
    bool refused = false;        // One more is not to be had.
    std::uint32_t attempts = 0;  // How often we asked for it,
    std::uint32_t sequence = 0;  // and our first packet's.
    TransferQueue under_way;     // With the card, in that order.
};

// How the packets of a peer's other queue pairs travel: as those of its first one.
struct Route {
    ibv_ah_attr way{};
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint8_t port = 1;
    std::uint16_t partition = 0;
    std::uint8_t timeout = 14;
};

// Linked: AttentionNode while something is due by time, FlushNode while messages wait for the end
// of the turn, WritableNode while reserve() owes a `writable`.
struct Peer : AttentionNode, FlushNode, WritableNode {
    PeerState state = PeerState::connecting;
    bool incoming = false;
    PeerInfo info;
    SocketName name;                         // Outgoing.
    std::unique_ptr<Resolution> resolution;  // resolving.
    TimePoint started{};
    std::uint32_t stale = 0;  // How often it knew our queue pair's number from before,
    std::uint32_t busy = 0;   // and how often it had no place for us,
    HangUps hang_ups;         // those without a word,
    std::string why_waiting;  // and what the last one came to.
    TimePoint due = never;    // While it is in the list of those attended to.
    std::string broken;       // Why it is to be brought down at the next poll.

    LaneEntry* talk = nullptr;
    std::uint32_t their_index = 0;  // What our immediates say.
    std::uint32_t granted = 0;      // Messages that it may have under way.
    std::uint32_t owed = 0;         // Those that came and are not given back.
    std::uint32_t credits = 0;      // Messages that we may send.
    std::uint32_t credits_full = 0;
    std::uint32_t slots = 0;  // In the backlog and in flight.
    std::uint64_t turn = 0;   // Of the last commit that left at once.
    SendQueue backlog;        // Not yet with the card; frames are joined to the last.

    Route route;
    std::array<Asking, lanes_most> asking;          // For our transfers.
    std::array<Owned<ibv_qp>, lanes_most> serving;  // For its.
    TransferQueue waiting;                          // Accepted, not yet with the card.
};
using PeerTable = base::SlotTable<Peer>;
using PeerEntry = PeerTable::Entry;

inline PeerId id_of(const PeerEntry& entry) { return {entry.slot, entry.generation}; }

}  // namespace weft::na::verbs
