#include "na/template/endpoint.h"

#include <unistd.h>

#include "na/common/exposure.h"
#include "na/common/no_room.h"

namespace weft::na::blank {

// Here: the limits of the network, within the bounds that provider.h gives.
static Limits limits_of(const EndpointParts& parts) {
    Limits limits;
    limits.message_bytes_max = 17 * 1024;
    limits.eager_bytes_max = 16 * 1024;
    limits.rma_bytes_max = 1 << 20;
    limits.rma_depth = 128;
    limits.rma_per_peer_max = 16;
    limits.peers_max = static_cast<std::uint32_t>(parts.peers_max);
    return limits;
}

TemplateEndpoint::TemplateEndpoint(EndpointParts parts)
    : parts_(std::move(parts)), limits_(limits_of(parts_)), owner_(::getpid()) {}

TemplateEndpoint::~TemplateEndpoint() {
    // Here, in a forked child: release the parent's kernel objects and names without ending them.
    if (::getpid() != owner_) return;
    // Here: send what is committed and a bye to each peer, then end all access to exposed memory.
}

std::string TemplateEndpoint::address() const {
    // Here: the URI at which the endpoint listens, with the port that it got.
    return {};
}

// Only what holds for every peer and every region.
Caps TemplateEndpoint::caps() const {
    // Here: the bits of the network; `rma` when post() works, `wait_fd` when arm() does.
    Caps caps;
    caps.rma_private = true;
    caps.fences_region = true;
    caps.fenced_by_end = true;
    return caps;
}

Result<PeerId> TemplateEndpoint::connect(const Address& to, TimePoint) {
    if (to.scheme != scheme()) {
        return fail(Code::invalid_argument, "template can't connect to " + to.uri());
    }
    if (peers_.size() >= limits_.peers_max) return at_peers_max(to, limits_.peers_max);
    Connection* const added = peers_.try_add();
    if (!added) return without_memory(to);
    Connection& connection = *added;
    connection.info.uri = to.uri();
    const PeerId id = connection.id;
    connection.phase.move_to(PeerPhase::connecting);
    // Here: start to connect, and send own_hello(). apply_hello() of the answer, then bring_up().
    take_down(connection, Code::unavailable, "nothing listens at " + to.uri());
    return id;
}

// Both sides have the other one's hello. An incoming peer moves to `handshaking` first. Here: the
// acceptor answers a hello at peers_max with listener_at_peers_max(), before it gives the peer a
// slot.
void TemplateEndpoint::bring_up(Connection& connection) {
    connection.phase.move_to(PeerPhase::up);
    events_.push(up_event(connection.id, connection.incoming));
}

const PeerInfo* TemplateEndpoint::info(PeerId peer) const {
    const Connection* connection = peers_.find_up(peer);
    return connection ? &connection->info : nullptr;
}

void TemplateEndpoint::close(PeerId peer) {
    if (peers_.find(peer)) {
        // Here: send what is committed, then a bye. The peer's transfers complete as CANCELLED.
        (void)peers_.remove(peer);
    }
    events_.drop_events_of(peer, [this](const Event& event) {
        // Here: the bytes of a message return to their pool.
        if (event.kind == EventKind::peer_down) peers_.recycle(event.peer.index);
    });
}

// The only place where a peer is lost. A peer that the caller knows gives exactly one peer_down; an
// incoming one that was never up gives no event.
void TemplateEndpoint::take_down(Connection& connection, Code code, std::string why) {
    const PeerId id = connection.id;
    const bool is_known = !connection.incoming || connection.phase == PeerPhase::up;
    // Here: leave all lists. The peer's transfers complete as UNAVAILABLE, each when the network no
    // longer accesses its memory.
    connection.phase.move_to(PeerPhase::down);
    if (is_known) events_.push(down_event(id, code), std::move(why));
    (void)peers_.release(id);
    if (!is_known) peers_.recycle(id.index);  // Of a known peer in the poll after its peer_down.
}

std::byte* TemplateEndpoint::reserve(PeerId, std::size_t) noexcept {
    // Here: room in the peer's ring, socket buffer or slot; nullptr, and `writable` follows.
    return nullptr;
}

bool TemplateEndpoint::commit(std::size_t) noexcept {
    // Here: send the claim at once if it is the first of this turn to its peer. True: later ones
    // wait for flush().
    return false;
}

void TemplateEndpoint::flush() noexcept {
    // Here: send all that was committed.
}

std::size_t TemplateEndpoint::unsent(PeerId) const {
    // Here: how much of what was committed is lost if the endpoint ends now.
    return 0;
}

std::size_t TemplateEndpoint::poll(std::span<Event> events, TimePoint) noexcept {
    peers_.begin_poll();
    // Here: the bytes of the last poll's messages return to their pool.
    events_.begin(events);
    // Here: while events_.has_room(), push the events of messages, completed transfers and room.
    // Accept peers, continue handshakes, and end those that are past their deadline.
    const std::size_t count = events_.end();
    peers_.note_reported(events.first(count));
    return count;
}

Result<FabricKey> TemplateEndpoint::expose(const Exposure& exposure) {
    if (Status status = validate_exposure(exposure); !status.ok()) return status;
    if (exposed_[exposure.region]) return already_exposed(exposure.region);
    // Here: register the memory. RESOURCE_EXHAUSTED if that fails.
    exposed_.set(exposure.region);
    return FabricKey{reinterpret_cast<std::uintptr_t>(exposure.memory.data()), exposure.key};
}

void TemplateEndpoint::fence(std::uint32_t region, Holders) {
    WEFT_ASSERT(region < regions_max);
    exposed_.reset(region);
    // Here: deregister the memory. The event follows when no access is possible any more.
    events_.push(fenced_event(region));
}

// Each item that is accepted completes exactly once.
std::size_t TemplateEndpoint::post(std::span<const RmaItem> items) noexcept {
    for (const RmaItem& item : items) {
        // Here: INVALID_ARGUMENT for 0 bytes or more than rma_bytes_max; else start the transfer.
        // Not accepted: items beyond rma_depth.
        events_.push_done(item, Code::unavailable,
                          transfer_text(item, nullptr, "the peer is not up"));
    }
    return items.size();
}

}  // namespace weft::na::blank
