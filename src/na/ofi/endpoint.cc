#include "na/ofi/endpoint.h"

#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"
#include "na/ofi/settings.h"

namespace weft::na::ofi {

OfiEndpoint::OfiEndpoint(const FabricTraits& traits, EndpointParts parts, TimePoint now)
    : traits_(traits),
      parts_(std::move(parts)),
      fences_(can_fence(traits)),
      wait_fd_(base::UniqueFd::close_on_fork(
          [&] { return parts_.sleeps ? ::epoll_create1(EPOLL_CLOEXEC) : -1; })),
      send_memory_(send_slots, message_bytes_wanted),
      sends_(send_slots, [this](std::uint32_t i) { return send_memory_.at(i); }),
      received_(receive_buffers, piece_bytes_max, message_bytes_wanted),
      transfers_({parts_.random.next(), parts_.random.next()}),
      clock_{now, now} {
    limits_.message_bytes_max = message_bytes_wanted;
    limits_.eager_bytes_max = message_bytes_wanted - header_room;
    limits_.rma_bytes_max = 1 << 20;
    limits_.rma_depth = transfer_depth;
    limits_.rma_per_peer_max = transfers_per_peer;
    limits_.peers_max = static_cast<std::uint32_t>(parts_.peers_max);
    av_.removed.reserve(removed_max);  // At once, so that connects and disconnects do not grow it.
}

OfiEndpoint::~OfiEndpoint() {
    peers_.for_each([this](Connection& peer) {
        send_bye(peer);
        remove(peer, Code::cancelled);
    });
    if (fabric_ && !finish_reading()) {
        parts_.log.error(std::string(traits_.scheme) +
                         ": a peer stopped in the middle of a reply to a get, and libfabric can't "
                         "close such a connection: its objects stay until the process ends");
        regions_.clear();
        base::keep_forever(std::move(fabric_));  // Nothing drives it, so it touches no memory.
        return;
    }
    if (fabric_) fabric_->close_endpoint();  // From here on libfabric uses no memory.
    regions_.clear();  // Memory is registered with the domain, so it ends first.
}

Status OfiEndpoint::listen(const Address& at) {
    const Result<SocketName> source = resolve_blocking(at);
    if (!source) return source.status();
    Status status = open_fabric(*source);
    listening_ = status.ok();
    return status;
}

// Memory is exposed before an address is chosen: opens libfabric at the first device.
Status OfiEndpoint::open_for_keys() {
    const auto source = find_source(traits_);
    if (!source) return source.status();
    Status status = open_fabric(*source);
    clock_.opened_at = clock_.now;
    return status;
}

Status OfiEndpoint::open_fabric(const SocketName& source) {
    auto opened = Fabric::open(traits_, source, parts_.peers_max, parts_.sleeps);
    if (!opened) return std::move(opened).status();
    epoll_event event{};
    event.events = EPOLLIN;
    if (parts_.sleeps && (!wait_fd_ || ::epoll_ctl(wait_fd_.get(), EPOLL_CTL_ADD,
                                                   (*opened)->wait_fd(), &event) != 0)) {
        return fail(Code::resource_exhausted,
                    "no file descriptor for " + std::string(traits_.scheme));
    }
    fabric_ = std::move(*opened);

    if (started_before_us(*fabric_)) {
        fences_ = false;
        parts_.log.error(
            std::string(traits_.scheme) +
            ": libfabric started before weft in this process, without weft's settings: "
            "regions can't be fenced, and peers with those settings refuse this process; set " +
            required_settings() + " yourself");
    }
    const std::size_t eager = fabric_->eager_bytes_max() - sizeof(Prefix);
    if (eager < piece_bytes_max) {
        piece_bytes_ = static_cast<std::uint32_t>(eager / 8 * 8);
        limits_.message_bytes_max =
            std::min<std::size_t>(limits_.message_bytes_max, pieces_max * piece_bytes_);
        limits_.eager_bytes_max =
            limits_.message_bytes_max - std::min(limits_.message_bytes_max, header_room);
    }
    for (Region& region : regions_) {
        if (!region.taken || region.memory) continue;
        if (!fences_) continue;  // Nothing is granted that can't be revoked.
        if (Status status = register_region(region); !status.ok()) return status;
    }
    set_close_on_exec();
    post_receives();
    return {};
}

std::string OfiEndpoint::address() const {
    if (!listening_) return "";
    return std::string(traits_.scheme) + "://" + fabric_->name().text();
}

Caps OfiEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.wait_fd = parts_.sleeps;
    caps.fences_region = fences_;
    caps.fenced_by_end = !traits_.deregistration_fences;  // An RDMA device may keep writing.
    return caps;
}

Result<PeerId> OfiEndpoint::connect(const Address& to, TimePoint now) {
    clock_.now = now;
    if (to.scheme != traits_.scheme || to.port == 0) {
        return fail(Code::invalid_argument, "can't connect to " + to.uri() + ": expected " +
                                                std::string(traits_.scheme) +
                                                "://host:port with a port");
    }
    if (!has_slot()) return at_peers_max(to, limits_.peers_max);
    Connection* const added = add_peer();
    if (!added) return without_memory(to);
    Connection& peer = *added;
    const PeerId id = peer.id;
    peer.info.uri = to.uri();
    if (const auto name = numeric_name(to)) {
        peer.name = *name;
        start_connecting(peer);
    } else {
        start_resolving(peer, to);
    }
    return id;
}

const PeerInfo* OfiEndpoint::info(PeerId id) const {
    const Connection* peer = peers_.find_up(id);
    return peer ? &peer->info : nullptr;
}

void OfiEndpoint::close(PeerId id) {
    if (Connection* peer = peers_.find(id); peer && drain(*peer)) {
        send_bye(*peer);
        remove(*peer, Code::cancelled);
    }
    events_.drop_events_of(id, [this](const Event& event) {
        if (event.kind == EventKind::message) {
            received_.hand_out(event.bytes.data());
        } else if (event.kind == EventKind::peer_down) {
            peers_.recycle(event.peer.index);
        }
    });
}

Connection* OfiEndpoint::add_peer() {
    WEFT_ASSERT(has_slot());
    Connection* const peer = peers_.try_add();
    if (!peer) return nullptr;
    peer->ours = {peer->id.index, static_cast<std::uint32_t>(parts_.random.next())};
    peer->started = clock_.now;
    return peer;
}

void OfiEndpoint::take_down(Connection& peer, Code code, std::string why) {
    // An incoming peer that never came up was never reported.
    const PeerId id = peer.id;
    const bool is_known = peer.phase != PeerPhase::handshaking;
    if (is_known) events_.push(down_event(id, code), std::move(why));
    detach(peer, Code::unavailable);
    if (!is_known) peers_.recycle(id.index);  // Of a known peer when peer_down is handed out.
}

void OfiEndpoint::remove(Connection& peer, Code transfers_end) {
    const PeerId id = peer.id;
    detach(peer, transfers_end);
    peers_.recycle(id.index);
}

// Releases all of the peer except its index and what libfabric still holds. Those slots and
// transfers return by completions, which no longer find the peer; each transfer keeps its code.
void OfiEndpoint::detach(Connection& peer, Code transfers_end) {
    const bool busy = peer.transfers_posted != 0;
    end_transfers(peer, transfers_end);
    while (SendSlot* slot = peer.backlog.pop_front()) drop(*slot);
    received_.drop_joined(std::move(peer.part));
    schedule_.remove(peer);
    backlog_.remove(peer);
    if (peer.phase == PeerPhase::handshaking) unlink_accepting(peer);
    AvEntry* av_entry = std::exchange(peer.av_entry, nullptr);
    if (peer.AvNode::is_linked()) peer.AvNode::unlink();
    const bool never_up = peer.phase != PeerPhase::up;
    if (av_entry && !never_up && !peer.received_bye) av_entry->may_reconnect = true;
    (void)peers_.release(peer.id);
    if (av_entry) release_av_entry(*av_entry, busy || (never_up && av_entry->peers == 1));
}

}  // namespace weft::na::ofi
