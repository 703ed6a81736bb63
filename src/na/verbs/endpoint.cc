#include "na/verbs/endpoint.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/log.h"
#include "base/random.h"

namespace weft::na::verbs {

static constexpr std::uint32_t lanes_max = 1u << 16;
static constexpr Duration stuck_pause = 1s;

static std::uint32_t table_slots(std::size_t peers_max) {
    return static_cast<std::uint32_t>((std::min<std::size_t>(peers_max, indices_max) + 63) / 64 *
                                      64);
}

VerbsEndpoint::VerbsEndpoint(EndpointParts parts, TimePoint now)
    : parts_(std::move(parts)),
      owner_(::getpid()),
      now_(now),
      epoll_(base::UniqueFd::closed_in_children([&] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      peers_(table_slots(parts_.peers_max)),
      lanes_(lanes_max),
      looked_at_(now) {
    limits_.message_bytes_max = message_bytes_wanted;
    limits_.eager_bytes_max = eager_bytes;
    limits_.rma_bytes_max = 1 << 20;
    limits_.rma_depth = transfers_max;
    limits_.rma_share = transfers_per_peer;
    limits_.peers_max =
        static_cast<std::uint32_t>(std::min<std::size_t>(parts_.peers_max, indices_max));
    handed_out_.reserve(receive_slots);
    receives_idle_.reserve(receive_slots);
}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::open(const Address* listen, EndpointParts parts,
                                                      TimePoint now) {
    std::unique_ptr<VerbsEndpoint> endpoint(new VerbsEndpoint(std::move(parts), now));
    if (Status status = endpoint->open_card(listen); !status.ok()) return status;
    return std::unique_ptr<Endpoint>(std::move(endpoint));
}

// Gives all that the kernel keeps, before the memory that the card may touch goes.
VerbsEndpoint::~VerbsEndpoint() {
    if (!card_) return;
    if (::getpid() != owner_) {
        forget_in_child();
        return;
    }
    std::vector<PeerEntry*> all;
    peers_.for_each([&](PeerEntry& entry) { all.push_back(&entry); });
    for (PeerEntry* entry : all) retire(*entry, Code::cancelled, true);
    // Last messages: a reply that was given is not taken back.
    const auto is_sending = [](const LaneEntry* lane) { return !lane->value.ended; };
    for (int waits = 0; waits < linger / 1ms && std::ranges::any_of(leaving_, is_sending);
         ++waits) {
        const timespec pause{0, 1'000'000};
        (void)::nanosleep(&pause, nullptr);
        (void)read_completions(true);
    }
    for (LaneEntry* lane : std::vector(leaving_)) (void)drop_lane(*lane);
    serve_stuck();
    if (!stuck_.empty()) keep_stuck();
}

// Until the process ends: the card's own memory, and what is registered with it. That of transfers
// is their owner's to keep, for they have not ended.
void VerbsEndpoint::keep_stuck() {
    for (StuckPair& stuck : stuck_) {
        (void)stuck.pair.release();
        while (Transfer* transfer = stuck.transfers.pop_front()) (void)transfer->memory.release();
        while (stuck.lane && stuck.lane->value.in_flight.pop_front()) continue;
    }
    if (cache_) cache_->forget();
    (void)card_.release();
}

// A process that was forked shares the kernel's objects with the one that made them.
void VerbsEndpoint::forget_in_child() {
    lanes_.for_each([](LaneEntry& lane) {
        (void)lane.value.pair.release();
        (void)lane.value.connection.release();
        while (lane.value.in_flight.pop_front()) continue;
    });
    peers_.for_each([](PeerEntry& peer) {
        for (Owned<ibv_qp>& serving : peer.value.serving) (void)serving.release();
        for (Asking& asking : peer.value.asking) {
            while (asking.under_way.pop_front()) continue;
        }
        while (peer.value.backlog.pop_front()) continue;
        while (peer.value.waiting.pop_front()) continue;
    });
    transfers_.for_each([](TransferTable::Entry& entry) { (void)entry.value.memory.release(); });
    for (StuckPair& stuck : stuck_) {
        (void)stuck.pair.release();
        while (stuck.transfers.pop_front()) continue;
    }
    if (cache_) cache_->forget();
    for (Owned<ibv_mr>& memory : regions_) (void)memory.release();
    while (asking_lanes_.pop_front()) continue;
    while (attention_.pop_front()) continue;
    while (unflushed_.pop_front()) continue;
    while (want_writable_.pop_front()) continue;
    (void)listener_.release();
    (void)card_.release();
    (void)channel_.release();
}

std::string VerbsEndpoint::address() const {
    return name_.empty() ? std::string() : "verbs://" + name_.text();
}

Caps VerbsEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.wait_fd = parts_.sleeps;
    caps.reports_peer_death = true;
    caps.fences_region = true;
    return caps;
}

Result<PeerId> VerbsEndpoint::connect(const Address& to, TimePoint now) {
    now_ = now;
    if (to.scheme != scheme() || to.port == 0) {
        return fail(Code::invalid_argument,
                    "can't connect to " + to.uri() + ": expected verbs://host:port with a port");
    }
    PeerEntry* entry = take_peer();
    if (!entry) {
        return fail(Code::resource_exhausted, "can't connect to " + to.uri() + ": all " +
                                                  std::to_string(limits_.peers_max) +
                                                  " peers of this endpoint are in use");
    }
    Peer& peer = entry->value;
    const PeerId id = id_of(*entry);
    peer.info.uri = to.uri();
    attend(*entry, now + handshake_max);
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

PeerEntry* VerbsEndpoint::find_up(PeerId peer) const {
    PeerEntry* entry = find(peer);
    return entry && entry->value.state == PeerState::up ? entry : nullptr;
}

const PeerInfo* VerbsEndpoint::info(PeerId peer) const {
    PeerEntry* entry = find_up(peer);
    return entry ? &entry->value.info : nullptr;
}

void VerbsEndpoint::close(PeerId peer) {
    if (PeerEntry* entry = find(peer)) retire(*entry, Code::cancelled, true);
    events_.forget(peer, [this](const Event& event) {
        if (event.kind == EventKind::message) {
            take_back(card_->receives().slot_of(event.bytes.data()));
        }
    });
}

PeerEntry* VerbsEndpoint::take_peer() {
    if (peers_.taken() >= limits_.peers_max) return nullptr;
    PeerEntry* entry = peers_.take();
    if (!entry) return nullptr;
    Peer& peer = entry->value;
    peer.state = PeerState::connecting;
    peer.incoming = false;
    peer.info = {};
    peer.name = {};
    peer.started = now_;
    peer.stale = peer.busy = 0;
    peer.hang_ups = {};
    peer.why_waiting.clear();
    peer.talk = nullptr;
    for (Asking& asking : peer.asking) {
        asking.up = asking.refused = false;
        asking.attempts = 0;
    }
    peer.their_index = peer.granted = peer.owed = peer.credits = peer.credits_full = 0;
    peer.slots = 0;
    peer.turn = 0;
    peer.due = never;
    peer.broken.clear();
    if (by_index_.size() <= entry->slot) by_index_.resize(entry->slot + 1);
    by_index_[entry->slot] = entry;
    ++handshakes_;
    look_now_ = true;
    return entry;
}

LaneEntry* VerbsEndpoint::take_lane(const PeerEntry& owner) {
    LaneEntry* entry = lanes_.take();
    if (!entry) return nullptr;
    Lane& lane = entry->value;
    lane.leaving = lane.ended = false;
    lane.peer = owner.id();
    lane.posted = lane.completed = lane.unsignalled = lane.which = 0;
    lane.due = never;
    return entry;
}

// A queue pair that shares its receive buffers goes by its error state, and some time for what came
// before to be read: a driver that destroys it forgets, with its completions, whose buffers they
// name.
void VerbsEndpoint::end_talk(LaneEntry& entry) {
    Lane& lane = entry.value;
    if (!lane.pair) return (void)drop_lane(entry);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    (void)::ibv_modify_qp(lane.pair.get(), &attr, IBV_QP_STATE);  // Not from its first state.
    lane.connection.reset();                                      // The peer hears of it.
    lane.ended = true;
    lane.due = now_ + flush_max;
    attention_at_ = std::min(attention_at_, lane.due);
    if (!std::exchange(lane.leaving, true)) leaving_.push_back(&entry);
}

// The one end of a lane. nullptr: behind it the card touches nothing on its behalf. Else what hangs
// on it is kept there.
StuckPair* VerbsEndpoint::drop_lane(LaneEntry& entry) {
    Lane& lane = entry.value;
    StuckPair* const stuck = destroy(lane.pair);
    lane.connection.reset();
    if (lane.leaving) std::erase(leaving_, &entry);
    if (lane.is_linked()) {
        lane.unlink();
        --asking_count_;
    }
    if (stuck) {
        stuck->lane = &entry;
        lane.leaving = lane.ended = true;
        lane.peer = {};  // Of what the card still says of it no peer hears.
    } else {
        free_lane(entry);
    }
    return stuck;
}

void VerbsEndpoint::free_lane(LaneEntry& entry) {
    Lane& lane = entry.value;
    PeerEntry* owner = lane.leaving ? nullptr : peers_.find(lane.peer);
    while (SendSlot* slot = lane.in_flight.pop_front()) {
        release(owner ? &owner->value : nullptr, *slot);
    }
    lanes_.give_back(entry);
}

// nullptr: it is gone.
StuckPair* VerbsEndpoint::destroy(Owned<ibv_qp>& pair) {
    const int error = pair ? ::ibv_destroy_qp(pair.get()) : 0;
    if (error != 0) {
        if (!std::exchange(stuck_told_, true)) {
            parts_.log.error("verbs: " + card_->name() +
                             " does not destroy a queue pair: " + describe(error) +
                             "; memory of transfers that it may still touch is kept until it does, "
                             "or the process ends");
        }
        stuck_due_ = now_ + stuck_pause;
        attention_at_ = std::min(attention_at_, stuck_due_);
        stuck_.emplace_back().pair = std::move(pair);
        return &stuck_.back();
    }
    (void)pair.release();
    return nullptr;
}

// Asks the card again. What hung on a queue pair that is gone now ends.
void VerbsEndpoint::serve_stuck() {
    std::list<StuckPair> before = std::exchange(stuck_, {});
    for (StuckPair& one : before) {
        StuckPair* const still = destroy(one.pair);
        if (still) {
            still->lane = one.lane;
            still->transfers.splice_back(one.transfers);
            continue;
        }
        while (Transfer* transfer = one.transfers.pop_front()) {
            finish(*transfer, Code::unavailable,
                   "its queue pair could not be destroyed for a while");
        }
        if (one.lane) free_lane(*one.lane);
    }
    if (stuck_.empty()) stuck_due_ = never;
}

void VerbsEndpoint::bring_down(PeerEntry& entry, Code code, std::string why) {
    Event event;
    event.kind = EventKind::peer_down;
    event.code = code;
    event.peer = id_of(entry);
    const Peer& peer = entry.value;
    // One that never came up is nobody's yet.
    const bool is_known = peer.state == PeerState::up || !peer.incoming;
    if (is_known) events_.give(event, std::move(why));
    retire(entry, Code::unavailable, false);
}

// `in_order`: what was committed leaves before the connection ends, as far as the window goes.
void VerbsEndpoint::retire(PeerEntry& entry, Code transfers_end, bool in_order) {
    Peer& peer = entry.value;
    const bool was_up = peer.state == PeerState::up;
    if (!was_up) --handshakes_;
    if (!was_up && peer.incoming) --strangers_;
    end_transfers(entry, transfers_end, "the connection ended");
    for (Owned<ibv_qp>& serving : peer.serving) (void)destroy(serving);
    const bool lingers =
        in_order && was_up && post_backlog(entry) && send_bare(entry, Kind::bye, true);
    while (SendSlot* slot = peer.backlog.pop_front()) release(&peer, *slot);
    if (LaneEntry* talk = std::exchange(peer.talk, nullptr)) {
        if (lingers) {
            talk->value.leaving = true;
            talk->value.due = now_ + linger;
            attention_at_ = std::min(attention_at_, talk->value.due);
            leaving_.push_back(talk);
        } else {
            end_talk(*talk);
        }
    }
    if (peer.AttentionNode::is_linked()) peer.AttentionNode::unlink();
    if (peer.FlushNode::is_linked()) peer.FlushNode::unlink();
    if (peer.WritableNode::is_linked()) peer.WritableNode::unlink();
    peer.resolution.reset();
    by_index_[entry.slot] = nullptr;
    peers_.give_back(entry);
}

}  // namespace weft::na::verbs
