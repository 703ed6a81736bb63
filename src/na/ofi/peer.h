// What an endpoint knows of its peers, of the connections beneath, and of transfers under way.
#pragma once

#include <rdma/fabric.h>
#include <sys/types.h>

#include <memory>
#include <vector>

#include "na/message_pool.h"
#include "na/ofi/reach.h"
#include "na/ofi/slots.h"
#include "na/provider.h"
#include "na/resolution.h"

namespace weft::na::ofi {

struct AttentionNode : base::ListNode {};
struct FlushNode : base::ListNode {};
struct WritableNode : base::ListNode {};
struct LinkNode : base::ListNode {};
struct AcceptingNode : base::ListNode {};
struct Peer;

// An address in libfabric's table; all peers there share libfabric's one connection to it.
struct Link {
    enum class State : std::uint8_t {
        used,       // Or about to be.
        lingering,  // By nobody: the bye has time to leave, until `due`.
        cutting,    // To be removed as soon as that is safe; tried at `due`.
    };
    // What libfabric made of our last word.
    enum class Word : std::uint8_t {
        none,     // It never took one: no peer was up, so nobody writes.
        taken,    // The address can be removed.
        refused,  // After one that was taken: whether a connection is left is not known.
    };
    void said(ssize_t error) {
        if (error == 0) {
            word = Word::taken;
        } else if (word == Word::taken) {
            word = Word::refused;
        }
    }

    SocketName name;
    fi_addr_t address = FI_ADDR_UNSPEC;
    std::uint32_t peers = 0;
    base::IntrusiveList<Peer, LinkNode> members;  // These.
    State state = State::used;                    // Changed in link.cc alone.
    Word word = Word::none;
    bool dirty = false;  // A peer on it is gone, yet the connection may still carry its writes: a
                         // fence must cut it.
    bool may_return = false;  // One that did not say bye: it may not know that it is gone, and make
                              // libfabric connect anew.
    TimePoint due = never;
    TimePoint cutting_since{};          // While cutting.
    TimePoint give_up_at = never;       // Waiting for a word to be taken, while cutting.
    std::vector<std::uint32_t> fences;  // Regions whose fence waits for the removal.
};

enum class PeerState : std::uint8_t {
    resolving,   // The name of the host.
    connecting,  // Saying hello until a welcome, a refusal or the deadline.
    accepting,   // Has said hello; our welcome has not left yet.
    up,
};

// Spacing of attempts that libfabric answered with "try again".
struct Retry {
    std::uint32_t attempts = 0;
    TimePoint since{};
    TimePoint next = never;
};

// One RmaItem that was accepted.
struct Transfer : Operation, base::ListNode {
    Transfer() : Operation(Kind::transfer) {}
    RmaItem item;
    bool posted = false;         // libfabric has it, and the memory of `item.local`.
    const Link* link = nullptr;  // While it is posted and that is there.
    Code cut_code = Code::ok;    // Set when the peer went while it was posted.
};
using TransferQueue = base::IntrusiveList<Transfer>;

// Linked: AttentionNode while something is due by time, FlushNode while frames wait for the end of
// the turn, WritableNode while reserve() owes a `writable`, AcceptingNode in that state.
struct Peer : AttentionNode, FlushNode, WritableNode, LinkNode, AcceptingNode {
    PeerState state = PeerState::connecting;
    bool incoming = false;
    bool said_bye = false;
    PeerInfo info;
    SocketName name;
    Link* link = nullptr;
    Label ours;    // How the peer addresses us,
    Label theirs;  // and we the peer.
    std::uint32_t sequence_in = 0;
    std::uint32_t sequence_out = 0;
    std::uint64_t turn = 0;   // Of the last commit that left at once.
    std::uint32_t slots = 0;  // In the backlog and with libfabric,
    std::size_t bytes = 0;    // and so many bytes.
    std::uint32_t transfers_posted = 0;
    SendQueue backlog;             // Not yet with libfabric; frames are joined to the last.
    MessagePool::Buffer part;      // The pieces that came of a message,
    std::uint32_t part_bytes = 0;  // so much of it.
    TransferQueue waiting;         // Accepted, not yet with libfabric.
    Retry retry;
    TimePoint started{};
    TimePoint probe_at = never;  // For the next time, once a listener was found.
    ListenerProbe probe;
    std::unique_ptr<Resolution> resolution;
};
using PeerTable = base::SlotTable<Peer>;
using PeerEntry = PeerTable::Entry;

inline PeerId id_of(const PeerEntry& entry) { return {entry.slot, entry.generation}; }

}  // namespace weft::na::ofi
