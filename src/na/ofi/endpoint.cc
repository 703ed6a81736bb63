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

OfiEndpoint::OfiEndpoint(const FabricTraits& traits, EndpointParts parts, TimePoint now)
    : traits_(traits),
      parts_(std::move(parts)),
      fences_(can_fence(traits)),
      now_(now),
      wait_fd_(base::UniqueFd::close_on_fork(
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
    limits_.rma_per_peer_max = transfers_per_peer;
    limits_.peers_max = static_cast<std::uint32_t>(parts_.peers_max);
    handed_out_.reserve(receive_buffers);
    pending_.reserve(2 * completions_per_read);
    removed_.reserve(removed_max);  // At once, so that connects and disconnects do not grow it.
    for (RmaOperation& transfer : transfers_) transfers_free_.push_back(&transfer);
}

OfiEndpoint::~OfiEndpoint() {
    peers_.for_each([this](ConnectionEntry& entry) {
        send_bye(entry.value);
        retire(entry, Code::cancelled);
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
    opened_at_ = now_;
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
    now_ = now;
    if (to.scheme != traits_.scheme || to.port == 0) {
        return fail(Code::invalid_argument, "can't connect to " + to.uri() + ": expected " +
                                                std::string(traits_.scheme) +
                                                "://host:port with a port");
    }
    ConnectionEntry* entry = take_peer(now);
    if (!entry) {
        return fail(Code::resource_exhausted, "can't connect to " + to.uri() + ": all " +
                                                  std::to_string(limits_.peers_max) +
                                                  " peers of this endpoint are in use");
    }
    Connection& peer = entry->value;
    const PeerId id = id_of(*entry);
    peer.info.uri = to.uri();
    if (const auto name = numeric_name(to)) {
        peer.name = *name;
        start_connecting(*entry);
    } else {
        peer.phase = PeerPhase::resolving;
        peer.resolution = Resolution::start(to, now);
        schedule(*entry, now);
    }
    return id;
}

ConnectionEntry* OfiEndpoint::find(PeerId peer) const {
    return peers_.find({peer.index, peer.generation});
}

ConnectionEntry* OfiEndpoint::find_up(PeerId peer) const {
    ConnectionEntry* entry = find(peer);
    return entry && entry->value.phase == PeerPhase::up ? entry : nullptr;
}

const PeerInfo* OfiEndpoint::info(PeerId peer) const {
    ConnectionEntry* entry = find_up(peer);
    return entry ? &entry->value.info : nullptr;
}

void OfiEndpoint::close(PeerId peer) {
    if (ConnectionEntry* entry = find(peer); entry && drain(*entry)) {
        send_bye(entry->value);
        retire(*entry, Code::cancelled);
    }
    drop_events_of(peer);
}

ConnectionEntry* OfiEndpoint::take_peer(TimePoint now) {
    if (peers_.taken() >= limits_.peers_max) return nullptr;
    ConnectionEntry* entry = peers_.take();
    if (!entry) return nullptr;
    Connection& peer = entry->value;
    peer.phase = PeerPhase::connecting;
    peer.incoming = peer.received_bye = false;
    peer.info = {};
    peer.av_entry = nullptr;
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

void OfiEndpoint::take_down(ConnectionEntry& entry, Code code, std::string why) {
    Event event;
    event.kind = EventKind::peer_down;
    event.code = code;
    event.peer = id_of(entry);
    // An incoming peer that never came up was never reported.
    const bool is_known = entry.value.phase != PeerPhase::accepting;
    if (is_known) emit(event, std::move(why));
    detach(entry, Code::unavailable);
    if (!is_known) peers_.recycle(entry);  // Of a known peer when peer_down is handed out.
}

void OfiEndpoint::retire(ConnectionEntry& entry, Code transfers_end) {
    detach(entry, transfers_end);
    peers_.recycle(entry);
}

// Releases all of the peer except its index and what libfabric still holds. Those slots and
// transfers return by completions, which no longer find the peer; each transfer keeps its code.
void OfiEndpoint::detach(ConnectionEntry& entry, Code transfers_end) {
    Connection& peer = entry.value;
    const bool busy = peer.transfers_posted != 0;
    end_transfers(entry, transfers_end);
    while (SendSlot* slot = peer.backlog.pop_front()) drop(*slot);
    pool_.give_back(std::move(peer.part));
    if (peer.ScheduledNode::is_linked()) peer.ScheduledNode::unlink();
    if (peer.FlushNode::is_linked()) peer.FlushNode::unlink();
    if (peer.WritableNode::is_linked()) peer.WritableNode::unlink();
    if (peer.phase == PeerPhase::accepting) unlink_accepting(peer);
    peer.resolution.reset();
    peer.probe = {};
    by_index_[entry.slot] = nullptr;
    AvEntry* av_entry = std::exchange(peer.av_entry, nullptr);
    if (peer.AvNode::is_linked()) peer.AvNode::unlink();
    const bool never_up = peer.phase != PeerPhase::up;
    if (av_entry && !never_up && !peer.received_bye) av_entry->may_reconnect = true;
    peers_.retire(entry);
    if (av_entry) release_av_entry(*av_entry, busy || (never_up && av_entry->peers == 1));
}

}  // namespace weft::na::ofi
