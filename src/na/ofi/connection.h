// State of an endpoint's peers, of the connections beneath them, and of transfers in flight.
#pragma once

#include <rdma/fabric.h>
#include <sys/types.h>

#include <memory>
#include <vector>

#include "na/common/peer_phase.h"
#include "na/common/schedule.h"
#include "na/common/send_backlog.h"
#include "na/message_pool.h"
#include "na/ofi/listener_probe.h"
#include "na/ofi/message_slots.h"
#include "na/provider.h"
#include "na/resolution.h"

namespace weft::na::ofi {

struct AvNode : base::ListNode {};
struct AcceptingNode : base::ListNode {};
struct Connection;

// An entry of libfabric's address vector. All its peers share libfabric's one connection to it.
struct AvEntry {
    enum class State : std::uint8_t {
        used,       // By peers, or about to be.
        lingering,  // Without peers: the bye has time to leave, until `due`.
        cutting,    // To be removed as soon as that is safe; tried at `due`.
    };
    // How libfabric answered the last send to this address.
    enum class LastSend : std::uint8_t {
        none,      // No send was accepted: no peer was up, so no peer writes.
        accepted,  // The address can be removed.
        refused,   // After an accepted send: whether a connection is left is unknown.
    };
    void on_send_result(ssize_t error) {
        if (error == 0) {
            last_send = LastSend::accepted;
        } else if (last_send == LastSend::accepted) {
            last_send = LastSend::refused;
        }
    }

    SocketName name;
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::uint32_t peers = 0;
    base::IntrusiveList<Connection, AvNode> members;  // The peers on this address.
    base::State<State> state{State::used};
    LastSend last_send = LastSend::none;
    bool dirty = false;  // A peer on it disconnected, yet the connection may still carry its
                         // writes: a fence must cut it.
    bool may_reconnect = false;  // A peer disconnected without a bye: it may not notice, and make
                                 // libfabric connect again.
    TimePoint due = never;
    TimePoint cutting_since{};          // Set in State::cutting.
    TimePoint abandon_at = never;       // In cutting: end of the wait for a send.
    std::vector<std::uint32_t> fences;  // Regions with a fence that waits for the removal.
};

// An entry that is being cut gives no further time to a bye.
constexpr bool can_move(AvEntry::State from, AvEntry::State to) {
    return from != AvEntry::State::cutting || to != AvEntry::State::lingering;
}

// Spacing of attempts that libfabric answered with "try again".
struct Retry {
    std::uint32_t attempts = 0;
    TimePoint since{};
};

// An accepted RmaItem.
struct RmaOperation : OperationContext, base::ListNode {
    RmaOperation() : OperationContext(Kind::transfer) {}
    RmaItem item;
    bool posted = false;                // libfabric holds it, and the memory of `item.local`.
    const AvEntry* av_entry = nullptr;  // While it is posted and the entry exists.
    Code cut_code = Code::ok;           // Set when the peer went down while it was posted.
};
using RmaList = base::IntrusiveList<RmaOperation>;

// Phases: connecting sends hello until a welcome, a refusal or the deadline. In handshaking a hello
// was received, and the welcome has not left yet: AcceptingNode is linked.
struct Connection : PeerBacklog<SendSlot>, ScheduledNode, AvNode, AcceptingNode {
    PeerId id;
    PhaseState phase{PeerPhase::waiting};
    bool incoming = false;
    bool received_bye = false;
    PeerInfo info;
    SocketName name;
    AvEntry* av_entry = nullptr;
    Label ours;    // On messages from the peer.
    Label theirs;  // On messages to the peer.

    // Messages and transfers.
    std::uint32_t sequence_in = 0;
    std::uint32_t sequence_out = 0;
    std::size_t bytes = 0;         // In its slots.
    MessagePool::Buffer part;      // The pieces received so far of a message.
    std::uint32_t part_bytes = 0;  // Bytes of them.
    std::uint32_t transfers_posted = 0;
    RmaList waiting;  // Accepted, not yet with libfabric.
    Retry retry;

    // In use until the connection is up.
    TimePoint started{};
    TimePoint probe_at = never;  // When to probe again, once a listener was found.
    ListenerProbe probe;
    std::unique_ptr<Resolution> resolution;
};

}  // namespace weft::na::ofi
