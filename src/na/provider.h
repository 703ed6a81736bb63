// The contract between weft and a network: one Provider per transport makes Endpoints, one per
// context.
//
// Rules that every provider keeps and the conformance suite checks:
// - Thread: an Endpoint belongs to the thread that turns its context; nothing here is locked. Only
//   wait_fd() may be watched by other threads.
// - No callbacks: poll() returns plain events, so the caller is never re-entered.
// - A peer begins with peer_up and ends with exactly one peer_down; so does, without peer_up, a
//   connect that fails after connect() returned OK. An incoming connection that fails before its
//   peer_up gives no event. After peer_down or close() the id is stale and every use of it is
//   refused.
// - Messages are whole, in order per peer, delivered at most once, and never after peer_down. A
//   message is one or more frames of core (each carries its length). A provider may join the
//   commits of a turn to one peer into one transport message, each at a multiple of 8 bytes, but
//   never splits a commit.
// - Invalid bytes of a peer end only its own connection (peer_down, Code::data_loss).
// - A missing capability is a bit in Caps, never a silent difference.
// - fork(): descriptors are made by base::UniqueFd::close_on_fork(), so that a child closes them at
//   once. A context destroys no endpoint in a child (core/forked.cc). tests/system/api checks that.
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

namespace weft::base {
class Log;
class Random;
}  // namespace weft::base

namespace weft::na {

using weft::Access;
using weft::allows;

class Arena;
class Door;
struct DoorParts;
class Exposures;

// A peer of one endpoint: a dense index, and a generation that distinguishes its reuses.
struct PeerId {
    std::uint32_t index = 0;
    std::uint32_t generation = 0;  // 0: none.
    // In one comparison.
    friend bool operator==(const PeerId& a, const PeerId& b) {
        return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
    }
    explicit operator bool() const { return generation != 0; }
};

// One lifetime of one process's endpoint. No two share a value, so references to memory of a dead
// process are recognised.
struct Incarnation {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const Incarnation&, const Incarnation&) = default;
};

// The capabilities of a transport. Printed by `weft info` and by the conformance suite. Core reads
// them once, after open(); only fences_region is read anew, as the first connect() or expose() may
// open a device without it (ofi).
struct Caps {
    bool rma = false;  // post() works. False: no put and get, and no calls with bodies above
                       // Limits::eager_bytes_max.
    bool rma_private = false;   // Memory outside the arena can be exposed.
    bool rma_checked = false;   // Each access is validated (key, range, permission, generation) by
                                // weft's code at access time. False: the owner grants a range to an
                                // initiator by message before it posts (bulk/wire.h), and the
                                // fabric enforces only its own key and bounds.
    bool rma_survives = false;  // Inaccessible memory, of either side, fails only its transfer.
                                // False: it may end the connection, or the process where a library
                                // copies by itself.
    bool wait_fd = false;       // wait_fd() and arm() work; false: core polls at intervals.
    bool reports_peer_death = false;  // SIGKILL of a peer gives peer_down by itself; false: only
                                      // core's heartbeats detect it.
    bool fences_region = false;       // fence() proves the end of access while peers live. False:
                                      // core exposes no memory.
    bool fenced_by_end = false;       // The end of the endpoint fences all its regions: only the
                                      // owner's process moves their data. So core counts an
                                      // rma_done with OK as an answer of the peer's process.
                                      // False: memory that was not fenced before may still be
                                      // written, and is never freed.
    bool sent_survives = false;       // Messages that unsent() no longer counts arrive even if this
                                      // endpoint ends; false: only a peer's answer to a later
                                      // message proves that.
    bool steers = false;              // It listens through a Door (Provider::open_door()): an
                                      // address reaches each context of its runtime.
    bool virtual_time = false;        // Simulated: poll() never waits in real time.
};

// Read anew for each use: the first connect() or expose() may open a device that lowers them (ofi).
struct Limits {
    // Largest reserve(). At least 2048: a peer refuses the hello otherwise (hello.cc).
    std::size_t message_bytes_max = 0;
    // Largest call payload (128 KiB; sm 64 KiB, verbs 16 KiB). At most message_bytes_max - 32, or a
    // peer refuses the hello. At least 16 KiB: a request of that size may be queued as a message
    // before its connection is up (rpc/client.cc), and fails if this is less.
    std::size_t eager_bytes_max = 0;
    // Largest RmaItem; bulk splits transfers into such chunks. At least 64 KiB.
    std::size_t rma_bytes_max = 0;
    std::uint32_t rma_depth = 0;         // RmaItems in flight per endpoint.
    std::uint32_t rma_per_peer_max = 0;  // Of those, with one peer; the caller enforces it.
    std::uint32_t peers_max = 0;         // EndpointParts::peers_max, or less.
};

enum class EventKind : std::uint8_t {
    message,        // `bytes`: valid, private to this process and unchanged until the next poll().
    peer_up,        // connect() succeeded, or a peer connected (`incoming`).
    peer_down,      // Connect failed, or connection lost, closed by the peer or broken; `code`,
                    // error().
    writable,       // reserve() failed for this peer before and may succeed now.
    rma_done,       // `cookie` of the RmaItem; `code` ok: for put, visible at the owner.
    region_fenced,  // `region`: no peer can touch the memory any more.
};

// Besides kind and peer, only the fields that the kind names are set.
struct Event {
    EventKind kind = EventKind::message;
    Code code = Code::ok;
    bool incoming = false;  // peer_up: the peer initiated the connection.
    PeerId peer;
    std::uint64_t cookie = 0;
    std::uint32_t region = 0;
    ByteView bytes;
};

// A connected peer. Valid from peer_up to peer_down; absent if the peer has disconnected before its
// peer_up is returned.
struct PeerInfo {
    std::string uri;          // The address connected to; of an incoming peer, the address in its
                              // hello.
    Incarnation incarnation;  // Of the peer's endpoint.
    std::size_t message_bytes_max = 0;  // Smaller of both sides.
    std::size_t eager_bytes_max = 0;
    std::uint64_t features = 0;  // That the peer understands: feature::… of na/hello.h.
    std::uint16_t contexts = 1;  // Of the peer's runtime.
    std::uint16_t context = 0;   // The one that this connection is with.
};

// A local range that peers may access.
struct Exposure {
    std::uint32_t region = 0;  // Index in core's region table, below regions_max.
    std::uint32_t generation = 0;
    std::uint64_t key = 0;  // Random; every access must present it.
    Bytes memory;
    Access access = Access::none;
};
inline constexpr std::uint32_t regions_max = 16384;

// The location of an exposed range for the fabric. Sent in grants, never in a BulkRef.
struct FabricKey {
    std::uint64_t address = 0;
    std::uint64_t key = 0;
};

// The holders of grants for a region, where caps().rma_checked is false: all have acknowledged that
// they no longer use it, or at least one is lost.
enum class Holders : std::uint8_t { done, lost };

enum class RmaKind : std::uint8_t { get, put };

// One piece of a transfer. `local` must stay valid until rma_done, also after peer_down.
struct RmaItem {
    RmaKind kind = RmaKind::get;
    PeerId peer;
    std::uint32_t region = 0;  // rma_checked: all three must match the owner's table.
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    FabricKey fabric;          // !rma_checked: as granted.
    std::uint64_t offset = 0;  // Into the region.
    Bytes local;
    std::uint64_t cookie = 0;
};

class Resolver;

// The inputs of an endpoint. All of them outlive it.
struct EndpointParts {
    base::Random& random;
    base::Log& log;
    Arena& arena;
    Incarnation incarnation;
    // The address announced to peers; empty: the transport's own.
    std::string public_uri;
    std::size_t peers_max = 1024;
    // False: the thread spins and never calls arm(). A transport with a descriptor that costs time
    // even when unused then has none (caps().wait_fd is false).
    bool sleeps = true;
    // Of verbs: RuntimeOptions::verbs_without, read by open() alone. Errors: INVALID_ARGUMENT.
    std::string_view verbs_without = {};
    Resolver* resolver = nullptr;  // Of host names; none: that of the system.

    // ---- its place among the contexts of its runtime
    std::uint16_t contexts = 1;
    std::uint16_t context = 0;
    // What it listens through, of its own provider; open() gets no address to listen on then.
    std::shared_ptr<Door> door = nullptr;
    // The regions of the other contexts, for Caps::rma_checked; nullptr: there is one context.
    Exposures* exposures = nullptr;
};

class Endpoint {
  public:
    virtual ~Endpoint() = default;

    virtual std::string_view scheme() const = 0;
    // The URI that reaches this endpoint, with the port that it got; empty when not listening.
    virtual std::string address() const = 0;
    virtual Caps caps() const = 0;
    virtual const Limits& limits() const = 0;

    // Starts connecting. peer_up or peer_down follows, also for immediate refusals. The index of
    // the peer is not used again before the poll after the one that returns its peer_down, or
    // before the caller closes it. The code of peer_down is RESOURCE_EXHAUSTED when the listener is
    // at its peers_max, UNAVAILABLE when nothing listens there or the host does not answer within
    // 2.5 s, UNIMPLEMENTED when this endpoint can't reach the address but another endpoint of its
    // provider may: core opens one. While a listener exists but does not answer yet, or has no room
    // for a handshake now (busy_code), the connect is retried until close(): the caller bounds
    // that. The number of concurrent connects to one address is limited; the others wait.
    // Errors: INVALID_ARGUMENT, RESOURCE_EXHAUSTED (peers_max).
    virtual Result<PeerId> connect(const Address& to, TimePoint now) = 0;
    // nullptr for a stale id or a peer that is not up.
    virtual const PeerInfo* info(PeerId peer) const = 0;
    // Ends the connection without an event, after sending committed messages as far as that is
    // possible at once. Unfinished RmaItems still complete, `cancelled`.
    virtual void close(PeerId peer) = 0;
    // The reason of a peer_down or a failed rma_done, as text. Such an event ends the batch of its
    // poll; error() describes it until the next poll.
    virtual std::string error() const = 0;
    // Why a connect that is not up yet is retried; empty: unknown. Only for error texts.
    virtual std::string why_waiting(PeerId peer) const {
        (void)peer;
        return {};
    }

    // Claims room for one message of up to `bytes`; the caller writes it there, then commits.
    // nullptr: no room now (`writable` follows) or the peer is not up. At most one claim is open
    // per endpoint.
    virtual std::byte* reserve(PeerId peer, std::size_t bytes) noexcept = 0;
    // Copies `body` into the open claim, up to the end of what is committed, or into memory that a
    // peer reads. The caller does not read it back. As memcpy, unless the transport has a cheaper
    // way for large bodies.
    virtual void copy_out(std::byte* to, ByteView body) noexcept {
        std::memcpy(to, body.data(), body.size());
    }
    // Sends the first `bytes` of the claim. The first commit of a turn to a peer is sent at once,
    // later ones at the latest with flush(). 0 abandons the claim. True: the turn must end with
    // flush().
    virtual bool commit(std::size_t bytes) noexcept = 0;
    // As commit(), but the first commit may also wait until flush(), to be joined with others. For
    // transports where a message costs a system call or a work request.
    virtual bool commit_later(std::size_t bytes) noexcept { return commit(bytes); }
    // Whether the transport has evidence that bytes of this endpoint have reached the peer's host
    // since the last call. May cost a system call. Without it a peer times out when its pong waits
    // too long behind its own messages (core/liveness.cc).
    virtual bool has_arrived(PeerId peer) {
        (void)peer;
        return false;
    }
    // Ends a turn: sends everything that was committed.
    virtual void flush() noexcept = 0;
    // How much of the data committed to a peer is lost if this endpoint ends now, in bytes or
    // messages. Shrinks as the peer reads and poll() is called. 0 for a peer that is not up.
    virtual std::size_t unsent(PeerId peer) const = 0;
    // True if a close() now would reach the peer after all data that was committed to it and
    // flushed, or if it is not up. Earlier than the default where the network keeps the close
    // behind the data (tcp, sim). Requires: Caps::sent_survives.
    virtual bool has_left(PeerId peer) const { return unsent(peer) == 0; }

    // Writes at most events.size() events. Frees the message bytes of the previous poll. An empty
    // poll costs no system call while messages flow; control work (accepting, peer death) is done
    // when idle and at least every few milliseconds of `now`.
    virtual std::size_t poll(std::span<Event> events, TimePoint now) noexcept = 0;

    // Makes memory accessible to every present and later peer with the reference. Other contexts
    // may expose it, too, unless rma_checked. Requires: the region is below regions_max, and
    // neither exposed nor being fenced here; some bytes; some access. All else is refused with
    // INVALID_ARGUMENT, ALREADY_EXISTS or RESOURCE_EXHAUSTED, or asserted (sm: an exposed region).
    // Errors: UNIMPLEMENTED (memory this transport can't expose: names weft::Buffer),
    // RESOURCE_EXHAUSTED (no more can be registered), UNAVAILABLE and FAILED_PRECONDITION (the
    // first region opens the device, which fails: ofi+verbs).
    virtual Result<FabricKey> expose(const Exposure& exposure) = 0;
    // Revokes a region and starts its fence; region_fenced follows when no access is possible any
    // more. With caps().rma_checked the fence waits for accesses in progress. Otherwise every
    // holder of a grant has acknowledged or is lost; ending the operations of a lost holder may
    // cost connections.
    virtual void fence(std::uint32_t region, Holders holders) = 0;

    // Starts transfers; returns how many items were accepted, from the first on (retry the rest
    // after a rma_done). Each accepted item gives exactly one rma_done, at the latest soon after
    // peer_down. Codes: PERMISSION_DENIED for a reference that is not valid now (key, generation,
    // range, permission), INVALID_ARGUMENT for 0 bytes or over rma_bytes_max, UNAVAILABLE for a
    // peer that is not up or went down, FAILED_PRECONDITION for memory of either side that can't be
    // accessed, CANCELLED after close(). Invalid items are accepted and complete with such a code:
    // an item that is not accepted has to be retried, and nothing else.
    virtual std::size_t post(std::span<const RmaItem> items) noexcept = 0;

    // Descriptor readable when poll() has work, provided arm() returned true after the last poll.
    // -1 without caps().wait_fd.
    virtual int wait_fd() const { return -1; }
    // True: the thread may sleep on wait_fd(), which also becomes readable if something arrived
    // before the sleep. False: poll again first.
    virtual bool arm() { return false; }
    // When poll() must be called even if nothing arrives; `never` without timers.
    virtual TimePoint next_deadline() const { return never; }
};

// Whether this process can use a transport, for `weft info` and for error texts.
struct Diagnosis {
    bool usable = false;
    std::string detail;  // What is available; or what is missing and the remedy.
};

class Provider {
  public:
    virtual ~Provider() = default;
    virtual std::string_view scheme() const = 0;  // "sm", "ofi+tcp", "sim".
    virtual Diagnosis probe() = 0;
    // An endpoint that can connect and, with `listen`, accept connections.
    // Errors: UNAVAILABLE (transport unusable here), ALREADY_EXISTS (name or port taken),
    // PERMISSION_DENIED, INVALID_ARGUMENT: one sentence with cause and place.
    virtual Result<std::unique_ptr<Endpoint>> open(const Address* listen, EndpointParts parts,
                                                   TimePoint now) = 0;
    // Listens on an address for the endpoints of several contexts. nullptr: the transport can't
    // pass a connection on to another context (Caps::steers). Errors: as open(). Thread: any.
    virtual Result<std::shared_ptr<Door>> open_door(const Address& listen, DoorParts parts,
                                                    TimePoint now);
};

}  // namespace weft::na
