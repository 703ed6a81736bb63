// State of an endpoint's peers, of the queue pairs that lead to them, and of transfers.
#pragma once

#include <array>
#include <memory>

#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "na/common/peer_phase.h"
#include "na/common/placement.h"
#include "na/common/schedule.h"
#include "na/common/send_backlog.h"
#include "na/connect_pacer.h"
#include "na/provider.h"
#include "na/resolution.h"
#include "na/verbs/credits.h"
#include "na/verbs/device.h"
#include "na/verbs/registration_cache.h"
#include "na/verbs/wire.h"

namespace weft::na::verbs {

// An outgoing message. While a queue pair holds it: `sequence` of its work request.
struct SendSlot : base::ListNode {
    std::byte* frames() const { return message; }
    void reset() {
        used = 0;
        kind = Kind::data;
    }

    std::byte* message = nullptr;
    std::uint32_t used = 0;
    std::uint32_t sequence = 0;
    Kind kind = Kind::data;
};
using SendQueue = base::IntrusiveList<SendSlot>;

// A queue pair that sends. Its completions and the events of its connection find it by its id.
// Linked: queue pairs for transfers, by their last use.
struct QueuePair : base::ListNode {
    bool draining = false;  // Its peer was closed; the last messages are being sent,
    bool ended = false;     // or are flushed. Then it is dropped at `due`.
    PeerId peer;
    Owned<ibv_qp> qp;
    Owned<rdma_cm_id> cm_id;        // Messages only. Declared behind `qp`: it ends first.
    std::uint32_t posted = 0;       // Work requests, ever.
    std::uint32_t completed = 0;    // Those known to be done, in order.
    std::uint32_t unsignalled = 0;  // Since the last signalled one.
    SendQueue in_flight;            // Messages: slots that the device may still read.
    TimePoint due = never;          // Draining: the end of this state.
    std::uint32_t which = 0;        // Transfers: which of the peer's queue pairs.
};
using QueuePairTable = base::SlotTable<QueuePair>;
using QueuePairEntry = QueuePairTable::Entry;

// An accepted RmaItem.
struct RmaOperation : base::ListNode {
    RmaItem item;
    Registration* cached = nullptr;  // The registration of `item.local`, while posted,
    Owned<ibv_mr> memory;            // or a registration of its own.
    std::uint32_t sequence = 0;      // Of its work request.
};
using RmaTable = base::SlotTable<RmaOperation>;
using RmaList = base::IntrusiveList<RmaOperation>;

// A queue pair that could not be destroyed: the device may still access the memory of its
// operations, which stays as it is until the queue pair is destroyed.
struct StuckQueuePair {
    Owned<ibv_qp> qp;
    QueuePairEntry* queue_pair = nullptr;  // With its messages in flight.
    RmaList transfers;                     // Its transfers, which have not ended.
};

// A queue pair for the transfers that this side starts with one peer.
struct InitiatorQueuePair {
    QueuePairEntry* queue_pair = nullptr;
    bool up = false;             // The peer has connected its end.
    bool refused = false;        // A further one was refused.
    std::uint32_t attempts = 0;  // Requests for it.
    std::uint32_t sequence = 0;  // Number of its first packet.
    RmaList under_way;           // Posted, in that order.
};

// The route of a peer's other queue pairs: that of its first one.
struct Route {
    ibv_ah_attr ah_attr{};
    ibv_mtu mtu = IBV_MTU_1024;
    std::uint8_t port = 1;
    std::uint16_t partition = 0;
    std::uint8_t timeout = 14;
};

// Phases: connecting makes the steps of rdma_cm; in handshaking the peer's hello has not arrived.
struct Connection : PeerBacklog<SendSlot>, ScheduledNode {
    PeerId id;
    PhaseState phase{PeerPhase::waiting};
    bool incoming = false;
    PeerInfo info;
    std::string broken;  // Why it is taken down at the next poll; empty: it is not.

    // In use until the connection is up.
    SocketName name;                         // Outgoing.
    std::unique_ptr<Resolution> resolution;  // resolving.
    TimePoint started{};
    std::uint32_t stale = 0;   // Rejections of queue pair numbers as stale.
    std::uint32_t busy = 0;    // Rejections for lack of room.
    HangUps hang_ups;          // Rejections without a reason.
    std::string why_waiting;   // The reason of the last rejection.
    std::uint16_t wanted = 0;  // Address::wanted.

    Placement::Place place;  // Incoming.

    // Messages.
    QueuePairEntry* message_queue_pair = nullptr;
    std::uint32_t remote_index = 0;  // In immediates to the peer.
    Credits credits;

    // Transfers.
    Route route;
    std::array<InitiatorQueuePair, queue_pairs_max> initiators;  // For this side's transfers.
    std::array<Owned<ibv_qp>, queue_pairs_max> targets;          // For the peer's transfers.
    RmaList waiting;                                             // Accepted, not yet posted.
};

}  // namespace weft::na::verbs
