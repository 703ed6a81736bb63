#include "na/ofi/endpoint.h"

#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "base/random.h"
#include "na/ofi/settings.h"

namespace weft::na::ofi {

static std::uint32_t table_slots(std::size_t peers_max) {
    return static_cast<std::uint32_t>((peers_max + 63) / 64 * 64);
}

OfiEndpoint::OfiEndpoint(const Row& row, EndpointParts parts, TimePoint now)
    : row_(row),
      parts_(std::move(parts)),
      fences_(can_fence(row)),
      now_(now),
      wait_fd_(base::UniqueFd::closed_in_children(
          [&] { return parts_.sleeps ? ::epoll_create1(EPOLL_CLOEXEC) : -1; })),
      sends_(send_slots, message_bytes_wanted),
      receives_(receive_buffers, piece_bytes_max),
      unread_{parts_.random.next(), parts_.random.next()},
      peers_(table_slots(parts_.peers_max)),
      polled_at_(now) {
    limits_.message_bytes_max = message_bytes_wanted;
    limits_.eager_bytes_max = message_bytes_wanted - header_room;
    limits_.rma_bytes_max = 1 << 20;
    limits_.rma_depth = transfer_depth;
    limits_.rma_share = transfers_per_peer;
    limits_.peers_max = static_cast<std::uint32_t>(parts_.peers_max);
    handed_out_.reserve(receive_buffers);
    pending_.reserve(2 * completions_per_read);
    gone_.reserve(gone_max);  // At once, so that nothing grows with those who come and go.
    for (Transfer& transfer : transfers_) transfers_free_.push_back(&transfer);
}

OfiEndpoint::~OfiEndpoint() {
    peers_.for_each([this](PeerEntry& entry) {
        say_bye(entry.value);
        retire(entry, Code::cancelled);
    });
    if (fabric_ && !finish_reading()) {
        parts_.log.error(std::string(row_.scheme) +
                         ": a peer stands still in the middle of an answer, and libfabric can't "
                         "close such a connection: its objects stay until the process ends");
        regions_.clear();
        base::keep_for_ever(std::move(fabric_));  // Nothing drives it, so it touches no memory.
        return;
    }
    if (fabric_) fabric_->close_endpoint();  // libfabric lets go of all memory here,
    regions_.clear();                        // and memory is registered with the domain.
}

Status OfiEndpoint::listen(const Address& at) {
    const Result<SocketName> source = wait_for_name(at);
    if (!source) return source.status();
    Status status = open_fabric(*source);
    listening_ = status.ok();
    return status;
}

// Memory is exposed before anybody said where to: at the first device, then.
Status OfiEndpoint::open_for_keys() {
    const auto source = find_source(row_);
    if (!source) return source.status();
    Status status = open_fabric(*source);
    opened_at_ = now_;
    return status;
}

Status OfiEndpoint::open_fabric(const SocketName& source) {
    auto opened = Fabric::open(row_, source, parts_.peers_max, parts_.sleeps);
    if (!opened) return std::move(opened).status();
    epoll_event event{};
    event.events = EPOLLIN;
    if (parts_.sleeps && (!wait_fd_ || ::epoll_ctl(wait_fd_.get(), EPOLL_CTL_ADD,
                                                   (*opened)->wait_fd(), &event) != 0)) {
        return fail(Code::resource_exhausted, "no file descriptor for " + std::string(row_.scheme));
    }
    fabric_ = std::move(*opened);

    if (started_before_us(*fabric_)) {
        fences_ = false;
        parts_.log.error(std::string(row_.scheme) +
                         ": libfabric started before weft in this process, without its settings: "
                         "regions can't be fenced, and peers with them refuse this one; set " +
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
        if (!fences_) continue;  // Nobody is granted what can't be taken back.
        if (Status status = register_region(region); !status.ok()) return status;
    }
    mark_sockets();
    post_receives();
    return {};
}

std::string OfiEndpoint::address() const {
    if (!listening_) return "";
    return std::string(row_.scheme) + "://" + fabric_->name().text();
}

Caps OfiEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.wait_fd = parts_.sleeps;
    caps.fences_region = fences_;
    caps.fenced_by_end = !row_.closing_fences;  // Else a card writes, which may not let go.
    return caps;
}

Result<PeerId> OfiEndpoint::connect(const Address& to, TimePoint now) {
    now_ = now;
    if (to.scheme != row_.scheme || to.port == 0) {
        return fail(Code::invalid_argument, "can't connect to " + to.uri() + ": expected " +
                                                std::string(row_.scheme) +
                                                "://host:port with a port");
    }
    PeerEntry* entry = take_peer(now);
    if (!entry) {
        return fail(Code::resource_exhausted, "can't connect to " + to.uri() + ": all " +
                                                  std::to_string(limits_.peers_max) +
                                                  " peers of this endpoint are in use");
    }
    Peer& peer = entry->value;
    const PeerId id = id_of(*entry);
    peer.info.uri = to.uri();
    if (const auto name = numeric_name(to)) {
        peer.name = *name;
        start_connecting(*entry);
    } else {
        peer.state = PeerState::resolving;
        peer.resolution = Resolution::start(to, now);
        attend(*entry, now);
    }
    return id;
}

PeerEntry* OfiEndpoint::find(PeerId peer) const {
    return peers_.find({peer.index, peer.generation});
}

PeerEntry* OfiEndpoint::find_up(PeerId peer) const {
    PeerEntry* entry = find(peer);
    return entry && entry->value.state == PeerState::up ? entry : nullptr;
}

const PeerInfo* OfiEndpoint::info(PeerId peer) const {
    PeerEntry* entry = find_up(peer);
    return entry ? &entry->value.info : nullptr;
}

void OfiEndpoint::close(PeerId peer) {
    if (PeerEntry* entry = find(peer); entry && drain(*entry)) {
        say_bye(entry->value);
        retire(*entry, Code::cancelled);
    }
    forget_events(peer);
}

PeerEntry* OfiEndpoint::take_peer(TimePoint now) {
    if (peers_.taken() >= limits_.peers_max) return nullptr;
    PeerEntry* entry = peers_.take();
    if (!entry) return nullptr;
    Peer& peer = entry->value;
    peer.state = PeerState::connecting;
    peer.incoming = peer.said_bye = false;
    peer.info = {};
    peer.link = nullptr;
    peer.ours = {entry->slot, static_cast<std::uint32_t>(parts_.random.next())};
    peer.theirs = {};
    peer.sequence_in = peer.sequence_out = 0;
    peer.turn = 0;
    peer.slots = peer.transfers_posted = 0;
    peer.bytes = 0;
    peer.part_bytes = 0;
    peer.retry = {};
    peer.started = now;
    peer.probe = {};
    if (by_index_.size() <= entry->slot) by_index_.resize(entry->slot + 1);
    by_index_[entry->slot] = entry;
    return entry;
}

void OfiEndpoint::bring_down(PeerEntry& entry, Code code, std::string why) {
    Event event;
    event.kind = EventKind::peer_down;
    event.code = code;
    event.peer = id_of(entry);
    // One that never came up is nobody's yet.
    if (entry.value.state != PeerState::accepting) emit(event, std::move(why));
    retire(entry, Code::unavailable);
}

// Everything of the peer goes but what libfabric still holds: slots come back by completions, which
// find the peer gone, and so do transfers, which remember how to end.
void OfiEndpoint::retire(PeerEntry& entry, Code transfers_end) {
    Peer& peer = entry.value;
    const bool busy = peer.transfers_posted != 0;
    end_transfers(entry, transfers_end);
    while (SendSlot* slot = peer.backlog.pop_front()) drop(*slot);
    pool_.give_back(std::move(peer.part));
    if (peer.AttentionNode::is_linked()) peer.AttentionNode::unlink();
    if (peer.FlushNode::is_linked()) peer.FlushNode::unlink();
    if (peer.WritableNode::is_linked()) peer.WritableNode::unlink();
    if (peer.state == PeerState::accepting) leave_accepting(peer);
    peer.resolution.reset();
    peer.probe = {};
    by_index_[entry.slot] = nullptr;
    Link* link = std::exchange(peer.link, nullptr);
    if (peer.LinkNode::is_linked()) peer.LinkNode::unlink();
    const bool never_up = peer.state != PeerState::up;
    if (link && !never_up && !peer.said_bye) link->may_return = true;
    peers_.give_back(entry);
    if (link) leave_link(*link, busy || (never_up && link->peers == 1));
}

}  // namespace weft::na::ofi
