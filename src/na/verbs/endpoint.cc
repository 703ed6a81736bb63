#include "na/verbs/endpoint.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "base/log.h"
#include "base/random.h"
#include "na/common/no_room.h"

namespace weft::na::verbs {

static constexpr Duration stuck_pause = 1s;

// Of the descriptors, while completions are polled.
static constexpr DescriptorPolls::Intervals descriptor_poll_intervals{2ms, 64, 10ms};

VerbsEndpoint::VerbsEndpoint(EndpointParts parts, TimePoint now)
    : parts_(std::move(parts)),
      owner_(::getpid()),
      epoll_(base::UniqueFd::close_on_fork([&] { return ::epoll_create1(EPOLL_CLOEXEC); })),
      now_(now),
      descriptor_polls_(descriptor_poll_intervals, now) {
    limits_.message_bytes_max = message_bytes_wanted;
    limits_.eager_bytes_max = eager_bytes;
    limits_.rma_bytes_max = 1 << 20;
    limits_.rma_depth = transfers_max;
    limits_.rma_per_peer_max = transfers_per_peer;
    limits_.peers_max =
        static_cast<std::uint32_t>(std::min<std::size_t>(parts_.peers_max, indices_max));
}

Result<std::unique_ptr<Endpoint>> VerbsEndpoint::open(SharedDevices& devices, const Address* listen,
                                                      EndpointParts parts, TimePoint now) {
    const auto optimizations = optimizations_without(parts.verbs_without);
    if (!optimizations) return optimizations.status();
    std::unique_ptr<VerbsEndpoint> endpoint(new VerbsEndpoint(std::move(parts), now));
    Status status = endpoint->open_cm(listen);
    if (status.ok()) status = endpoint->open_device(devices, *optimizations);
    if (!status.ok()) return status;
    return std::unique_ptr<Endpoint>(std::move(endpoint));
}

// Destroys all kernel objects before the memory that the device may access is freed.
VerbsEndpoint::~VerbsEndpoint() {
    if (::getpid() != owner_) {
        release_in_child();
        return;
    }
    if (cm_.door) cm_.door->leave(parts_.context);
    if (!device_) return;
    peers_.for_each([this](Connection& peer) { remove(peer, Code::cancelled, true); });
    // Waits for the last messages: a committed reply must not be lost.
    const auto is_sending = [](const QueuePairEntry* queue_pair) {
        return !queue_pair->value.ended;
    };
    for (int waits = 0;
         waits < linger / 1ms && std::ranges::any_of(queue_pairs_.draining, is_sending); ++waits) {
        const timespec pause{0, 1'000'000};
        (void)::nanosleep(&pause, nullptr);
        (void)read_completions(true);
    }
    for (QueuePairEntry* queue_pair : std::vector(queue_pairs_.draining))
        (void)drop_queue_pair(*queue_pair);
    serve_stuck();
    for (SharedDevice::Region* region : regions_) {
        if (region) (void)device_->end_region(*region);
    }
    if (!queue_pairs_.stuck.empty()) leak_stuck();
}

// Keeps the device's memory, and all that is registered with it, until the process ends. The memory
// of transfers stays with its owner, for they have not ended.
void VerbsEndpoint::leak_stuck() {
    for (StuckQueuePair& stuck : queue_pairs_.stuck) {
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
    queue_pairs_.table.for_each([](QueuePairEntry& queue_pair) {
        (void)queue_pair.value.qp.release();
        (void)queue_pair.value.cm_id.release();
        while (queue_pair.value.in_flight.pop_front()) continue;
    });
    peers_.for_each([](Connection& peer) {
        for (Owned<ibv_qp>& target : peer.targets) (void)target.release();
        for (InitiatorQueuePair& initiator : peer.initiators) {
            while (initiator.under_way.pop_front()) continue;
        }
        while (peer.backlog.pop_front()) continue;
        while (peer.waiting.pop_front()) continue;
    });
    transfers_.for_each([](RmaTable::Entry& entry) { (void)entry.value.memory.release(); });
    for (StuckQueuePair& stuck : queue_pairs_.stuck) {
        (void)stuck.qp.release();
        while (stuck.transfers.pop_front()) continue;
    }
    if (cache_) cache_->abandon();
    while (queue_pairs_.initiators.pop_front()) continue;
    schedule_.clear();
    backlog_.clear();
    if (cm_.door) cm_.door->abandon();
    (void)device_.release();
    (void)cm_.own_channel.release();
}

std::string VerbsEndpoint::address() const {
    return cm_.door ? "verbs://" + cm_.door->name().text() : std::string();
}

Caps VerbsEndpoint::caps() const {
    Caps caps;
    caps.rma = true;
    caps.rma_private = true;
    caps.wait_fd = parts_.sleeps;
    caps.reports_peer_death = true;
    caps.fences_region = true;
    caps.steers = true;
    return caps;
}

Result<PeerId> VerbsEndpoint::connect(const Address& to, TimePoint now) {
    now_ = now;
    if (to.scheme != scheme() || to.port == 0) {
        return fail(Code::invalid_argument,
                    "can't connect to " + to.uri() + ": expected verbs://host:port with a port");
    }
    if (!has_slot()) return at_peers_max(to, limits_.peers_max);
    Connection* const added = add_peer();
    if (!added) return without_memory(to);
    Connection& peer = *added;
    const PeerId id = peer.id;
    peer.info.uri = to.uri();
    peer.wanted = to.wanted;
    schedule_.add(peer, now + handshake_max);
    if (const auto name = numeric_name(to)) {
        peer.name = *name;
        start_connecting(peer);
    } else {
        start_resolving(peer, to);
    }
    return id;
}

const PeerInfo* VerbsEndpoint::info(PeerId id) const {
    const Connection* peer = peers_.find_up(id);
    return peer ? &peer->info : nullptr;
}

void VerbsEndpoint::close(PeerId id) {
    if (Connection* peer = peers_.find(id)) remove(*peer, Code::cancelled, true);
    events_.drop_events_of(id, [this](const Event& event) {
        if (event.kind == EventKind::message) {
            recycle(device_->receives().slot_of(event.bytes.data()));
        } else if (event.kind == EventKind::peer_down) {
            peers_.recycle(event.peer.index);
        }
    });
}

Connection* VerbsEndpoint::add_peer() {
    WEFT_ASSERT(has_slot());
    Connection* const peer = peers_.try_add();
    if (!peer) return nullptr;
    peer->started = now_;
    ++handshakes_.all;
    descriptor_polls_.request();
    return peer;
}

QueuePairEntry* VerbsEndpoint::take_queue_pair(const Connection& owner) {
    QueuePairEntry* entry = queue_pairs_.table.take();
    if (!entry) return nullptr;
    QueuePair& queue_pair = entry->value;
    queue_pair.draining = queue_pair.ended = false;
    queue_pair.peer = owner.id;
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
    schedule_.note(queue_pair.due);
    if (!std::exchange(queue_pair.draining, true)) queue_pairs_.draining.push_back(&entry);
}

// The only place where a queue pair ends. nullptr: the device accesses nothing more on its behalf.
// Otherwise the result keeps its operations.
StuckQueuePair* VerbsEndpoint::drop_queue_pair(QueuePairEntry& entry) {
    WEFT_ASSERT(entry.is_taken());
    QueuePair& queue_pair = entry.value;
    StuckQueuePair* const stuck = destroy(queue_pair.qp);
    queue_pair.cm_id.reset();
    if (queue_pair.draining) std::erase(queue_pairs_.draining, &entry);
    if (queue_pair.is_linked()) {
        queue_pair.unlink();
        WEFT_ASSERT(queue_pairs_.initiator_count != 0);
        --queue_pairs_.initiator_count;
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
    WEFT_ASSERT(entry.is_taken() && !entry.value.is_linked());
    QueuePair& queue_pair = entry.value;
    Connection* owner = queue_pair.draining ? nullptr : peers_.find(queue_pair.peer);
    while (SendSlot* slot = queue_pair.in_flight.pop_front()) {
        release(owner, *slot);
    }
    queue_pairs_.table.release(entry);
}

// nullptr: it is destroyed.
StuckQueuePair* VerbsEndpoint::destroy(Owned<ibv_qp>& qp) {
    const int error = qp ? ::ibv_destroy_qp(qp.get()) : 0;
    if (error != 0) {
        if (!std::exchange(queue_pairs_.stuck_logged, true)) {
            parts_.log.error("verbs: " + device_->name() +
                             " does not destroy a queue pair: " + describe(error) +
                             "; memory of transfers that it may still touch is kept until it does, "
                             "or the process ends");
        }
        queue_pairs_.stuck_due = now_ + stuck_pause;
        schedule_.note(queue_pairs_.stuck_due);
        queue_pairs_.stuck.emplace_back().qp = std::move(qp);
        return &queue_pairs_.stuck.back();
    }
    (void)qp.release();
    return nullptr;
}

// Retries the destruction, and ends the operations of queue pairs that are destroyed now.
void VerbsEndpoint::serve_stuck() {
    std::list<StuckQueuePair> before = std::exchange(queue_pairs_.stuck, {});
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
    if (queue_pairs_.stuck.empty()) queue_pairs_.stuck_due = never;
}

void VerbsEndpoint::take_down(Connection& peer, Code code, std::string why) {
    // An incoming peer that never came up was never reported.
    const PeerId id = peer.id;
    const bool is_known = peer.phase == PeerPhase::up || !peer.incoming;
    if (is_known) events_.push(down_event(id, code), std::move(why));
    detach(peer, Code::unavailable, false);
    if (!is_known) peers_.recycle(id.index);  // Of a known peer when peer_down is handed out.
}

void VerbsEndpoint::remove(Connection& peer, Code transfers_end, bool in_order) {
    const PeerId id = peer.id;
    detach(peer, transfers_end, in_order);
    peers_.recycle(id.index);
}

// Releases all of the peer except its index. `in_order`: committed messages leave before the
// connection ends, as far as the window allows.
void VerbsEndpoint::detach(Connection& peer, Code transfers_end, bool in_order) {
    const bool was_up = peer.phase == PeerPhase::up;
    WEFT_ASSERT(was_up || handshakes_.all != 0);
    WEFT_ASSERT(was_up || !peer.incoming || handshakes_.incoming != 0);
    if (!was_up) --handshakes_.all;
    if (!was_up && peer.incoming) --handshakes_.incoming;
    end_transfers(peer, transfers_end, "the connection ended");
    for (Owned<ibv_qp>& target : peer.targets) (void)destroy(target);
    const bool lingers =
        in_order && was_up && post_backlog(peer) && send_bare(peer, Kind::bye, true);
    while (SendSlot* slot = peer.backlog.pop_front()) release(&peer, *slot);
    if (QueuePairEntry* message_queue_pair = std::exchange(peer.message_queue_pair, nullptr)) {
        if (lingers) {
            message_queue_pair->value.draining = true;
            message_queue_pair->value.due = now_ + linger;
            schedule_.note(message_queue_pair->value.due);
            queue_pairs_.draining.push_back(message_queue_pair);
        } else {
            flush_queue_pair(*message_queue_pair);
        }
    }
    schedule_.remove(peer);
    backlog_.remove(peer);
    (void)peers_.release(peer.id);
}

}  // namespace weft::na::verbs
