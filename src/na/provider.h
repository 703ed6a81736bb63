// The contract between weft and a network: one Provider per transport makes Endpoints, one per
// context.
//
// Rules that every provider keeps and the conformance suite checks:
// - Thread: an Endpoint belongs to the thread that turns its context; nothing here is locked. Only
//   wait_fd() may be watched from elsewhere.
// - Nothing calls back: poll() hands out plain events, so the caller is never re-entered.
// - A peer is known by peer_up and is gone by exactly one peer_down, also when connect() succeeded
//   only in starting; after peer_down or close() its id is stale and every use of it is refused.
// - Messages are whole, in order per peer, delivered at most once, and never after peer_down.
//   A message is one or more frames of core's (each carries its length): a provider may join what
//   was committed to one peer within a turn into one transport message, each starting at a multiple
//   of 8 bytes, never split a commit.
// - Peer bytes never harm: a broken peer costs its own connection (peer_down, Code::data_loss).
// - What a provider cannot do is a bit in Caps, never a silent difference.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include <weft/bytes.h>
#include <weft/region.h>
#include <weft/result.h>
#include <weft/time.h>

#include "na/address.h"
#include "na/economies.h"

namespace weft::base {
class Log;
class Random;
}  // namespace weft::base

namespace weft::na {

using weft::Access;
using weft::allows;

class Arena;

// A peer of one endpoint: a dense index, and a generation that tells its reuses apart.
struct PeerId {
    std::uint32_t index = 0;
    std::uint32_t generation = 0;  // 0: none.
    // In one comparison.
    friend bool operator==(const PeerId& a, const PeerId& b) {
        return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    }
    explicit operator bool() const { return generation != 0; }
};

// One life of one process's endpoint. Two lives never share a value, so references to memory of a
// dead process are recognised.
struct Incarnation {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const Incarnation&, const Incarnation&) = default;
};

// What a transport can do and what it can't. Printed by `weft info` and by the conformance suite.
struct Caps {
    bool rma = false;           // post() works.
    bool rma_private = false;   // Memory outside the arena can be exposed.
    bool rma_checked = false;   // Each access is judged (key, range, permission, generation) by
                                // weft's code at access time. False: the owner grants a range to
                                // an initiator by message before it posts (bulk/wire.h), and
                                // the fabric enforces only its own key and bounds.
    bool rma_survives = false;  // Memory that can't be touched, of either side, costs its transfer
                                // and nothing else. False: it may cost the connection, and where a
                                // library copies by itself the process.
    bool wait_fd = false;       // wait_fd() and arm() work; false: poll now and then.
    bool reports_peer_death = false;  // SIGKILL of a peer gives peer_down by itself; false: silence
                                      // is all there is, and core's heartbeats find it.
    bool fences_region = false;       // fence() proves the end of access while peers live.
    bool fenced_by_end = false;       // The end of the endpoint ends all access, too: no other
                                      // process copies. False: a region that was not fenced before
                                      // may be written still, and its memory never goes back.
    bool sent_survives = false;       // What unsent() no longer counts arrives though this
                                      // endpoint ends; false: only an answer of the peer to a
                                      // later message proves that.
    bool virtual_time = false;        // Simulated: poll() never waits for the real world.
};

struct Limits {
    std::size_t message_bytes_max = 0;  // Largest reserve().
    std::size_t eager_bytes_max = 0;    // Largest payload of a call (128 KiB; sm 64 KiB).
    std::size_t rma_bytes_max = 0;      // Largest RmaItem; core cuts transfers into such chunks.
    std::uint32_t rma_depth = 0;        // RmaItems that may be under way per endpoint.
    std::uint32_t rma_share = 0;        // Of those, with one peer: the caller keeps to it.
    std::uint32_t peers_max = 0;
};

enum class EventKind : std::uint8_t {
    message,        // `bytes`: valid, private to us and unchanging until the next poll().
    peer_up,        // connect() succeeded, or a peer came in (`incoming`).
    peer_down,      // Connection refused, lost, closed by the peer or broken; `code`, error().
    writable,       // reserve() was refused for this peer before and may work now.
    rma_done,       // `cookie` of the RmaItem; `code` ok: for put, visible at the owner.
    region_fenced,  // `region`: no peer can touch the memory any more.
};

// Besides kind and peer only what the kind names is set.
struct Event {
    EventKind kind = EventKind::message;
    Code code = Code::ok;
    bool incoming = false;  // peer_up: the peer connected to us.
    PeerId peer;
    std::uint64_t cookie = 0;
    std::uint32_t region = 0;
    ByteView bytes;
};

// What is known of a connected peer. Valid from peer_up to peer_down; of one that is gone already
// when its peer_up is handed out there is nothing.
struct PeerInfo {
    std::string uri;          // As connected to; for incoming peers what the peer calls itself.
    Incarnation incarnation;  // Of the peer's endpoint.
    std::size_t message_bytes_max = 0;  // Smaller of both sides.
    std::size_t eager_bytes_max = 0;
};

// A range of ours that peers may access.
struct Exposure {
    std::uint32_t region = 0;  // Index in core's region table, below regions_max.
    std::uint32_t generation = 0;
    std::uint64_t key = 0;  // Random; whoever knows it may ask.
    Bytes memory;
    Access access = Access::none;
};
inline constexpr std::uint32_t regions_max = 4096;

// Where an exposed range is for the fabric. Travels in grants, never in a BulkRef.
struct FabricKey {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
};

// Those who were granted a region, where caps().rma_checked is false: whether each of them has said
// that it is done with it.
enum class Holders : std::uint8_t { done, lost };

enum class RmaKind : std::uint8_t { get, put };

// One piece of a transfer. `local` must stay valid until rma_done, also after peer_down.
struct RmaItem {
    RmaKind kind = RmaKind::get;
    PeerId peer;
    std::uint32_t region = 0;  // rma_checked: what the owner's table must say.
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    FabricKey fabric;          // !rma_checked: as granted.
    std::uint64_t offset = 0;  // Into the region.
    Bytes local;
    std::uint64_t cookie = 0;
};

class Resolver;

// What an endpoint is made with. Everything here outlives it.
struct EndpointParts {
    base::Random& random;
    base::Log& log;
    Arena& arena;
    Incarnation incarnation;
    // Listening name others are told; empty: whatever the transport gives.
    std::string public_uri;
    std::size_t peers_max = 1024;
    // False: the thread spins, nobody will call arm(). A transport whose descriptor costs time even
    // when nobody sleeps on it goes without (caps().wait_fd is false then).
    bool sleeps = true;
    Economies economies = {};      // verbs only.
    Resolver* resolver = nullptr;  // Of host names; none: that of the system.
};

class Endpoint {
  public:
    virtual ~Endpoint() = default;

    virtual std::string_view scheme() const = 0;
    // What a peer types to reach us; empty when not listening.
    virtual std::string address() const = 0;
    virtual Caps caps() const = 0;
    virtual const Limits& limits() const = 0;

    // Starts connecting. peer_up or peer_down follows, also for refusals found at once: its code is
    // RESOURCE_EXHAUSTED when the listener is at its peers_max, UNAVAILABLE when nothing listens
    // there or the host does not answer, within 2.5 s, UNIMPLEMENTED when this endpoint can't get
    // there and another one of its provider may. A listener that is there and does not answer yet,
    // or has no place now, is waited for and tried again until close(): the caller bounds that.
    // Of many connects to one address some are under way at a time, the others wait for them.
    // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (peers_max).
    virtual Result<PeerId> connect(const Address& to, TimePoint now) = 0;
    // nullptr for a stale id or a peer that is not up.
    virtual const PeerInfo* info(PeerId peer) const = 0;
    // Ends the connection without an event, behind what was committed to it as far as that leaves
    // at once; unfinished RmaItems still complete, `cancelled`.
    virtual void close(PeerId peer) = 0;
    // Why the last peer_down, refusal or rma_done with an error happened, in words; for that event
    // (so a poll may end its batch with it).
    virtual std::string error() const = 0;
    // Why a connect is not up yet, as its last refusal says; empty: nothing is known.
    virtual std::string why_waiting(PeerId peer) const {
        (void)peer;
        return {};
    }

    // Claims room for one message of up to `bytes`; write it there, then commit. nullptr: no room
    // now (`writable` follows) or the peer is not up. At most one claim is open per endpoint.
    virtual std::byte* reserve(PeerId peer, std::size_t bytes) noexcept = 0;
    // Copies `body` to the end of the open claim, which the caller does not read, or into memory
    // that a peer reads. As memcpy, unless the transport has a cheaper way for large bodies.
    virtual void copy_out(std::byte* to, ByteView body) noexcept {
        std::memcpy(to, body.data(), body.size());
    }
    // Sends the first `bytes` of the claim. The first commit of a turn leaves at once, later ones
    // at the latest with flush(). 0 abandons the claim. True: the turn has to end with flush().
    virtual bool commit(std::size_t bytes) noexcept = 0;
    // The same without haste: as the first of its turn it may wait for what follows, until flush().
    virtual bool commit_later(std::size_t bytes) noexcept { return commit(bytes); }
    // Whether the transport knows by itself that something of ours arrived at the peer's host since
    // this was asked last. May cost a system call.
    virtual bool has_arrived(PeerId peer) {
        (void)peer;
        return false;
    }
    // Ends a turn: everything committed is on its way.
    virtual void flush() noexcept = 0;
    // What was committed to a peer that is up and is lost if this endpoint ends now, in bytes or
    // messages; it shrinks as the peer reads and poll() is called. 0 for one that is not up.
    virtual std::size_t unsent(PeerId peer) const = 0;
    // Whether all that was committed to a peer, and flushed, gets there though close() follows now:
    // the peer is told of the close behind it. True for one that is not up. Requires:
    // Caps::sent_survives.
    virtual bool has_left(PeerId peer) const { return unsent(peer) == 0; }

    // Writes at most events.size() events. Frees the message bytes of the poll before. An empty
    // poll costs no system call while messages flow; control work (accepting, peer death) is done
    // when idle and at least every few milliseconds of `now`.
    virtual std::size_t poll(std::span<Event> events, TimePoint now) noexcept = 0;

    // Makes memory accessible to every peer that has the reference, now and later ones too.
    // Errors: UNIMPLEMENTED (memory this transport can't expose: names weft::Buffer),
    // RESOURCE_EXHAUSTED.
    virtual Result<FabricKey> expose(const Exposure& exposure) = 0;
    // Revokes and starts the fence; region_fenced follows when no access can happen any more. For
    // caps().rma_checked that waits for accesses under way; otherwise every holder of a grant has
    // acknowledged, or is lost: then what it had under way may cost connections to end.
    virtual void fence(std::uint32_t region, Holders holders) = 0;

    // Starts transfers; returns how many of the prefix were accepted (the rest: try again after a
    // rma_done). Each accepted item gives exactly one rma_done, at the latest soon after peer_down.
    // Codes: PERMISSION_DENIED for a reference that is not valid now (key, generation, range,
    // permission), INVALID_ARGUMENT for 0 bytes or over rma_bytes_max, UNAVAILABLE for a peer that
    // is not up or went down, FAILED_PRECONDITION for private memory that this machine does not let
    // us reach, CANCELLED after close(). Bad items are accepted and finish so: a
    // refusal here means "later" and nothing else.
    virtual std::size_t post(std::span<const RmaItem> items) noexcept = 0;

    // Descriptor readable when poll() has work, provided arm() answered true after the last poll.
    // -1 without caps().wait_fd.
    virtual int wait_fd() const { return -1; }
    // True: the thread may sleep on wait_fd(). False: poll again first.
    virtual bool arm() { return false; }
    // When poll() must be called though nothing arrives; `never` without own timers.
    virtual TimePoint next_deadline() const { return never; }
};

// Whether this process can use a transport, for `weft info` and for refusals in one sentence.
struct Diagnosis {
    bool usable = false;
    std::string detail;  // What is there; or what is missing and how to mend it.
};

class Provider {
  public:
    virtual ~Provider() = default;
    virtual std::string_view scheme() const = 0;  // "sm", "ofi+tcp", "sim".
    virtual Diagnosis probe() = 0;
    // An endpoint that can connect and, with `listen`, be connected to.
    // Errors: UNAVAILABLE (transport unusable here), ALREADY_EXISTS (name or port taken),
    // PERMISSION_DENIED, INVALID_ARGUMENT: one sentence with what and where.
    virtual Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                                   TimePoint now) = 0;
};

}  // namespace weft::na
