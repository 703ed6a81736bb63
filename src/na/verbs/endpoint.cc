#include "na/verbs/endpoint.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/log.h"
#include "base/random.h"

namespace weft::na::verbs {

static constexpr std::uint32_t queue_pair_slots_max = 1u << 16;
static constexpr Duration stuck_pause = 1s;

static std::uint32_t table_slots(std::size_t peers_max) {
    return static_cast<std::uint32_t>((std::min<std::size_t>(peers_max, indices_max) + 63) / 64 *
                                      64);
}

VerbsEndpoint::VerbsEndpoint(EndpointParts parts, TimePoint now)
    : parts_(std::move(parts)),
      owner_(::getpid()),
      now_(now),
      epoll_(base::UniqueFd::close_on_fork([&] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      peers_(table_slots(parts_.peers_max)),
      queue_pairs_(queue_pair_slots_max),
      descriptors_polled_at_(now) {
    limits_.message_bytes_max = message_bytes_wanted;
    limits_.eager_bytes_max = eager_bytes;
    limits_.rma_bytes_max = 1 << 20;
    limits_.rma_depth = transfers_max;
    limits_.rma_per_peer_max = transfers_per_peer;
    limits_.peers_max =
        static_cast<std::uint32_t>(std::min<std::size_t>(parts_.peers_max, indices_max));
    handed_out_.reserve(receive_slots);
    receives_idle_.reserve(receive_slots);
}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::open(const Address* listen, EndpointParts parts,
                                                      TimePoint now) {
    std::unique_ptr<VerbsEndpoint> endpoint(new VerbsEndpoint(std::move(parts), now));
    if (Status status = endpoint->open_device(listen); !status.ok()) return status;
    return std::unique_ptr<Endpoint>(std::move(endpoint));
}

// Destroys all kernel objects before the memory that the device may access is freed.
VerbsEndpoint::~VerbsEndpoint() {
    if (!device_) return;
    if (::getpid() != owner_) {
        release_in_child();
        return;
    }
    std::vector<ConnectionEntry*> all;
    peers_.for_each([&](ConnectionEntry& entry) { all.push_back(&entry); });
    for (ConnectionEntry* entry : all) retire(*entry, Code::cancelled, true);
    // Waits for the last messages: a committed reply must not be lost.
    const auto is_sending = [](const QueuePairEntry* queue_pair) {
        return !queue_pair->value.ended;
    };
    for (int waits = 0; waits < linger / 1ms && std::ranges::any_of(draining_, is_sending);
         ++waits) {
        const timespec pause{0, 1'000'000};
        (void)::nanosleep(&pause, nullptr);
        (void)read_completions(true);
    }
    for (QueuePairEntry* queue_pair : std::vector(draining_)) (void)drop_queue_pair(*queue_pair);
    serve_stuck();
    if (!stuck_.empty()) leak_stuck();
}

// Keeps the device's memory, and all that is registered with it, until the process ends. The memory
// of transfers stays with its owner, for they have not ended.
void VerbsEndpoint::leak_stuck() {
    for (StuckQueuePair& stuck : stuck_) {
        (void)stuck.qp.release();
        while (RmaOperation* transfer = stuck.transfers.pop_front())
            (void)transfer->memory.release();
        while (stuck.queue_pair && stuck.queue_pair->value.in_flight.pop_front()) continue;
    }
    if (cache_) cache_->abandon();
    (void)device_.release();
}

// A forked child shares the kernel's objects with its parent, and must not destroy them.
void VerbsEndpoint::release_in_child() {
    queue_pairs_.for_each([](QueuePairEntry& queue_pair) {
        (void)queue_pair.value.qp.release();
        (void)queue_pair.value.cm_id.release();
        while (queue_pair.value.in_flight.pop_front()) continue;
    });
    peers_.for_each([](ConnectionEntry& peer) {
        for (Owned<ibv_qp>& target : peer.value.targets) (void)target.release();
        for (InitiatorQueuePair& initiator : peer.value.initiators) {
            while (initiator.under_way.pop_front()) continue;
        }
        while (peer.value.backlog.pop_front()) continue;
        while (peer.value.waiting.pop_front()) continue;
    });
    transfers_.for_each([](RmaTable::Entry& entry) { (void)entry.value.memory.release(); });
    for (StuckQueuePair& stuck : stuck_) {
        (void)stuck.qp.release();
        while (stuck.transfers.pop_front()) continue;
    }
    if (cache_) cache_->abandon();
    for (Owned<ibv_mr>& memory : regions_) (void)memory.release();
    while (initiator_queue_pairs_.pop_front()) continue;
    while (scheduled_.pop_front()) continue;
    while (unflushed_.pop_front()) continue;
    while (want_writable_.pop_front()) continue;
    (void)listener_.release();
    (void)device_.release();
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
    ConnectionEntry* entry = take_peer();
    if (!entry) {
        return fail(Code::resource_exhausted, "can't connect to " + to.uri() + ": all " +
                                                  std::to_string(limits_.peers_max) +
                                                  " peers of this endpoint are in use");
    }
    Connection& peer = entry->value;
    const PeerId id = id_of(*entry);
    peer.info.uri = to.uri();
    schedule(*entry, now + handshake_max);
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

ConnectionEntry* VerbsEndpoint::find_up(PeerId peer) const {
    ConnectionEntry* entry = find(peer);
    return entry && entry->value.phase == PeerPhase::up ? entry : nullptr;
}

const PeerInfo* VerbsEndpoint::info(PeerId peer) const {
    ConnectionEntry* entry = find_up(peer);
    return entry ? &entry->value.info : nullptr;
}

void VerbsEndpoint::close(PeerId peer) {
    if (ConnectionEntry* entry = find(peer)) retire(*entry, Code::cancelled, true);
    events_.drop_events_of(peer, [this](const Event& event) {
        if (event.kind == EventKind::message) {
            recycle(device_->receives().slot_of(event.bytes.data()));
        } else if (event.kind == EventKind::peer_down) {
            peers_.recycle(event.peer.index);
        }
    });
}

ConnectionEntry* VerbsEndpoint::take_peer() {
    if (peers_.taken() >= limits_.peers_max) return nullptr;
    ConnectionEntry* entry = peers_.take();
    if (!entry) return nullptr;
    Connection& peer = entry->value;
    peer.phase = PeerPhase::connecting;
    peer.incoming = false;
    peer.info = {};
    peer.name = {};
    peer.started = now_;
    peer.stale = peer.busy = 0;
    peer.hang_ups = {};
    peer.why_waiting.clear();
    peer.message_queue_pair = nullptr;
    for (InitiatorQueuePair& initiator : peer.initiators) {
        initiator.up = initiator.refused = false;
        initiator.attempts = 0;
    }
    peer.remote_index = peer.granted = peer.unreturned_credits = peer.credits = peer.window = 0;
    peer.slots = 0;
    peer.turn = 0;
    peer.due = never;
    peer.broken.clear();
    if (by_index_.size() <= entry->slot) by_index_.resize(entry->slot + 1);
    by_index_[entry->slot] = entry;
    ++handshakes_;
    poll_descriptors_now_ = true;
    return entry;
}

QueuePairEntry* VerbsEndpoint::take_queue_pair(const ConnectionEntry& owner) {
    QueuePairEntry* entry = queue_pairs_.take();
    if (!entry) return nullptr;
    QueuePair& queue_pair = entry->value;
    queue_pair.draining = queue_pair.ended = false;
    queue_pair.peer = owner.id();
    queue_pair.posted = queue_pair.completed = queue_pair.unsignalled = queue_pair.which = 0;
    queue_pair.due = never;
    return entry;
}

// A queue pair with shared receive buffers passes through its error state, with some time to read
// earlier completions. A driver that destroys it drops those, and with them the buffers that they
// name.
void VerbsEndpoint::flush_queue_pair(QueuePairEntry& entry) {
    QueuePair& queue_pair = entry.value;
    if (!queue_pair.qp) return (void)drop_queue_pair(entry);
    ibv_qp_attr attr{};
    attr.qp_state = IBV_QPS_ERR;
    (void)::ibv_modify_qp(queue_pair.qp.get(), &attr, IBV_QP_STATE);  // Fails in its first state.
    queue_pair.cm_id.reset();                                         // Notifies the peer.
    queue_pair.ended = true;
    queue_pair.due = now_ + flush_max;
    next_scheduled_ = std::min(next_scheduled_, queue_pair.due);
    if (!std::exchange(queue_pair.draining, true)) draining_.push_back(&entry);
}

// The only place where a queue pair ends. nullptr: the device accesses nothing more on its behalf.
// Otherwise the result keeps its operations.
StuckQueuePair* VerbsEndpoint::drop_queue_pair(QueuePairEntry& entry) {
    QueuePair& queue_pair = entry.value;
    StuckQueuePair* const stuck = destroy(queue_pair.qp);
    queue_pair.cm_id.reset();
    if (queue_pair.draining) std::erase(draining_, &entry);
    if (queue_pair.is_linked()) {
        queue_pair.unlink();
        --initiator_count_;
    }
    if (stuck) {
        stuck->queue_pair = &entry;
        queue_pair.draining = queue_pair.ended = true;
        queue_pair.peer = {};  // Its later completions reach no peer.
    } else {
        free_queue_pair(entry);
    }
    return stuck;
}

void VerbsEndpoint::free_queue_pair(QueuePairEntry& entry) {
    QueuePair& queue_pair = entry.value;
    ConnectionEntry* owner = queue_pair.draining ? nullptr : peers_.find(queue_pair.peer);
    while (SendSlot* slot = queue_pair.in_flight.pop_front()) {
        release(owner ? &owner->value : nullptr, *slot);
    }
    queue_pairs_.release(entry);
}

// nullptr: it is destroyed.
StuckQueuePair* VerbsEndpoint::destroy(Owned<ibv_qp>& qp) {
    const int error = qp ? ::ibv_destroy_qp(qp.get()) : 0;
    if (error != 0) {
        if (!std::exchange(stuck_logged_, true)) {
            parts_.log.error("verbs: " + device_->name() +
                             " does not destroy a queue pair: " + describe(error) +
                             "; memory of transfers that it may still touch is kept until it does, "
                             "or the process ends");
        }
        stuck_due_ = now_ + stuck_pause;
        next_scheduled_ = std::min(next_scheduled_, stuck_due_);
        stuck_.emplace_back().qp = std::move(qp);
        return &stuck_.back();
    }
    (void)qp.release();
    return nullptr;
}

// Retries the destruction, and ends the operations of queue pairs that are destroyed now.
void VerbsEndpoint::serve_stuck() {
    std::list<StuckQueuePair> before = std::exchange(stuck_, {});
    for (StuckQueuePair& one : before) {
        StuckQueuePair* const still = destroy(one.qp);
        if (still) {
            still->queue_pair = one.queue_pair;
            still->transfers.splice_back(one.transfers);
            continue;
        }
        while (RmaOperation* transfer = one.transfers.pop_front()) {
            finish(*transfer, Code::unavailable,
                   "the queue pair of the transfer could not be destroyed in time");
        }
        if (one.queue_pair) free_queue_pair(*one.queue_pair);
    }
    if (stuck_.empty()) stuck_due_ = never;
}

void VerbsEndpoint::take_down(ConnectionEntry& entry, Code code, std::string why) {
    Event event;
    event.kind = EventKind::peer_down;
    event.code = code;
    event.peer = id_of(entry);
    const Connection& peer = entry.value;
    // An incoming peer that never came up was never reported.
    const bool is_known = peer.phase == PeerPhase::up || !peer.incoming;
    if (is_known) events_.push(event, std::move(why));
    detach(entry, Code::unavailable, false);
    if (!is_known) peers_.recycle(entry);  // Of a known peer when peer_down is handed out.
}

void VerbsEndpoint::retire(ConnectionEntry& entry, Code transfers_end, bool in_order) {
    detach(entry, transfers_end, in_order);
    peers_.recycle(entry);
}

// Releases all of the peer except its index. `in_order`: committed messages leave before the
// connection ends, as far as the window allows.
void VerbsEndpoint::detach(ConnectionEntry& entry, Code transfers_end, bool in_order) {
    Connection& peer = entry.value;
    const bool was_up = peer.phase == PeerPhase::up;
    if (!was_up) --handshakes_;
    if (!was_up && peer.incoming) --pending_incoming_;
    end_transfers(entry, transfers_end, "the connection ended");
    for (Owned<ibv_qp>& target : peer.targets) (void)destroy(target);
    const bool lingers =
        in_order && was_up && post_backlog(entry) && send_bare(entry, Kind::bye, true);
    while (SendSlot* slot = peer.backlog.pop_front()) release(&peer, *slot);
    if (QueuePairEntry* message_queue_pair = std::exchange(peer.message_queue_pair, nullptr)) {
        if (lingers) {
            message_queue_pair->value.draining = true;
            message_queue_pair->value.due = now_ + linger;
            next_scheduled_ = std::min(next_scheduled_, message_queue_pair->value.due);
            draining_.push_back(message_queue_pair);
        } else {
            flush_queue_pair(*message_queue_pair);
        }
    }
    if (peer.ScheduledNode::is_linked()) peer.ScheduledNode::unlink();
    if (peer.FlushNode::is_linked()) peer.FlushNode::unlink();
    if (peer.WritableNode::is_linked()) peer.WritableNode::unlink();
    peer.resolution.reset();
    by_index_[entry.slot] = nullptr;
    peers_.retire(entry);
}

}  // namespace weft::na::verbs
