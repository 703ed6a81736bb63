#include "bulk/rendezvous.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/assert.h"

namespace weft::bulk {

static constexpr std::size_t waiting_max = 4096;
// If so many frames wait for a peer, a further decline closes its connection. More than the data
// (ContextOptions::waiting_data_max, 12288), replies and pushbacks of all slots that may wait for a
// peer which reads slowly.
static constexpr std::uint32_t declines_waiting_max = 14336;
static constexpr std::size_t waiting_per_peer_max = waiting_max / 4;

static ByteView ref_bytes(const RendezvousBody& where) {
    return {reinterpret_cast<const std::byte*>(where.ref), RegionRef::wire_bytes};
}
static RegionRef ref_of(const RendezvousBody& where) {
    return base::load<RegionRef>(ref_bytes(where).data());
}

Rendezvous::Rendezvous(core::Context& context, Regions& regions, Transfers& transfers,
                       std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max,
                       std::shared_ptr<core::Budget> budget)
    : context_(context),
      regions_(regions),
      transfers_(transfers),
      body_bytes_max_(body_bytes_max),
      pool_(context, std::move(arena), body_bytes_max, std::move(budget),
            [this] { start_waiting(); }) {
    context_.watch_peers(*this);
    regions_.set_rendezvous_sender(*this);
    transfers_.set_memory_waiters([this] {
        // Users also allocate from the arena, and other contexts from the memory for bodies, and
        // their releases cause no notification: so waiting fetches retry on each check.
        if (!waiting_.empty()) pool_.notify_room();
        if (pool_.serve_other_contexts()) return MemoryWaiters::other_peers;
        const MemoryWaiters own = memory_waiters();
        const bool continues = pool_.is_shared() && fetches_.taken() != 0;
        return own == MemoryWaiters::none && continues ? MemoryWaiters::same_peer : own;
    });
}

Rendezvous::~Rendezvous() {
    waiting_.for_each([&](Fetch& fetch) { stop_waiting(fetch); });
}

// ---- rendezvous: sending ---------------------------------------------------------------------

Result<RendezvousBuffer> Rendezvous::prepare(core::Peer& peer, std::size_t bytes,
                                             SendTime send_time) {
    WEFT_ASSERT(bytes > 0 && bytes <= body_bytes_max_);
    Block* block = pool_.take(peer.ref, bytes, Use::sending);
    if (!block) return pool_.why_none(peer.ref, bytes);
    const bool is_new = !block->region;
    if (is_new) {
        // The exposed bytes behind the body may hold bodies of other peers.
        const std::size_t exposed = BlockPool::block_bytes(bytes);
        std::memset(block->memory().data() + bytes, 0, exposed - bytes);
        static_assert(BlockPool::blocks_max <= Regions::body_regions);
        Result<Region> region =
            regions_.expose(block->buffer(exposed), {Access::read, {}}, Regions::Purpose::body);
        if (!region) {
            pool_.discard(*block);
            return std::move(region).status();
        }
        block->region = *std::move(region);
    }
    block->body_bytes = bytes;
    const RegionRef ref = block->region.ref(0, bytes);
    RendezvousBuffer rendezvous;
    rendezvous.memory = block->memory().first(bytes);
    ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(rendezvous.where.ref), RegionRef::wire_bytes));
    const bool is_unsent = send_time == SendTime::later;
    rendezvous.where.grant =
        regions_.grant_rendezvous(ref.region, ref.generation, peer, block->id, is_unsent);
    // If the rendezvous fails, no body overwrites another peer's data in a block that is exposed by
    // now.
    const auto clear = [&] {
        if (is_new) std::memset(rendezvous.memory.data(), 0, bytes);
    };
    if (rendezvous.where.grant == 0) {
        clear();
        pool_.release(*block);
        return fail(Code::resource_exhausted,
                    "a large body to " + peer.uri + " gets no grant: all are in use");
    }
    if (peer.state == core::PeerState::up) {
        if (Status why = bind_to_connection(peer, rendezvous.where); !why.ok()) {
            clear();
            withdraw(peer, rendezvous.where);
            return why;
        }
    }
    return rendezvous;
}

Status Rendezvous::bind_to_connection(core::Peer& peer, RendezvousBody& where) {
    const RegionRef ref = ref_of(where);
    Result<na::FabricKey> fabric = regions_.fabric_key(ref.region, ref.generation, *peer.endpoint);
    if (!fabric) return std::move(fabric).status().in("a large body to " + peer.uri);
    where.fabric = *fabric;
    return Status();
}

void Rendezvous::mark_sent(core::Peer& peer, const RendezvousBody& where) {
    regions_.mark_sent(peer, where.grant);
}

void Rendezvous::withdraw(core::Peer& peer, const RendezvousBody& where) {
    regions_.withdraw(peer, where.grant);
}

void Rendezvous::on_rendezvous_released(base::SlotId block_id) {
    Block* block = pool_.find(block_id);
    WEFT_ASSERT(block != nullptr && block->use == Use::sending);
    pool_.release(*block);
}

// The next connection may be to another incarnation of the peer, so the bytes behind the body,
// which may be of bodies sent to the earlier one, are cleared.
void Rendezvous::on_rendezvous_retained(base::SlotId block_id) {
    Block* block = pool_.find(block_id);
    WEFT_ASSERT(block != nullptr && block->use == Use::sending);
    WEFT_ASSERT(block->body_bytes <= block->region.ref().length);
    const Bytes all = block->memory().first(block->region.ref().length);
    std::memset(all.data() + block->body_bytes, 0, all.size() - block->body_bytes);
}

// ---- rendezvous: fetching --------------------------------------------------------------------

FetchId Rendezvous::fetch(core::Peer& peer, const RendezvousBody& where, TimePoint deadline,
                          FetchCompletion done) {
    FetchEntry* entry = fetches_.take();
    if (!entry) {
        decline(peer, where);
        // Without a record the completion can't be deferred: only this case runs it inside fetch().
        done(fail(Code::resource_exhausted,
                  std::to_string(fetches_.taken()) +
                      " large bodies are being fetched, and there is no room for one more"),
             {});
        return {};
    }
    Fetch& fetch = entry->value;
    fetch.owner = this;
    fetch.id = entry->id();
    fetch.peer = peer.ref;
    fetch.where = where;
    fetch.deadline = deadline;
    fetch.into = nullptr;
    fetch.transfer = {};
    fetch.failed_unstarted = false;
    fetch.done = std::move(done);
    fetch.fire = [](base::Timer& timer, TimePoint) {
        auto& late = static_cast<Fetch&>(timer);
        late.owner->fail_fetch(
            late, fail(Code::deadline_exceeded,
                       "the memory for large bodies had no room for the body before the deadline"));
    };
    const FetchId id = fetch.id;
    Result<RegionRef> from = RegionRef::decode(ref_bytes(where));
    if (from) fetch.from = *from;
    if (Status why = validate(fetch, from.status()); !why.ok()) {
        fail_fetch(fetch, std::move(why));
    } else if (peer.traffic.waiting > 0 || !try_begin(fetch)) {
        enqueue_or_fail(fetch);
    }
    return id;
}

Status Rendezvous::validate(const Fetch& fetch, const Status& decoded) const {
    if (!decoded.ok()) return decoded;
    if (fetch.where.grant == 0) {
        return fail(Code::unimplemented, "the sender can't expose memory over this transport");
    }
    if (fetch.from.length == 0)
        return fail(Code::invalid_argument, "a rendezvous body is never empty");
    if (fetch.from.length > body_bytes_max_) {
        return fail(Code::resource_exhausted, "a body of " + std::to_string(fetch.from.length) +
                                                  " bytes exceeds the receiver's limit of " +
                                                  std::to_string(body_bytes_max_));
    }
    return {};
}

// A peer over its share waits only for its own memory. A share is half of all, so at most two peers
// can be over theirs.
MemoryWaiters Rendezvous::memory_waiters() {
    bool wanted = false;
    ++round_;
    waiting_.for_each([&](Fetch& fetch) {
        core::Traffic& traffic = core::Context::find(fetch.peer)->traffic;
        if (wanted || std::exchange(traffic.served_round, round_) == round_) return;
        wanted = !pool_.is_over_share(fetch.peer, fetch.from.length);
    });
    if (wanted) return MemoryWaiters::other_peers;
    return waiting_.empty() ? MemoryWaiters::none : MemoryWaiters::same_peer;
}

void Rendezvous::enqueue_or_fail(Fetch& fetch) {
    core::Peer* const peer = context_.find(fetch.peer);
    WEFT_ASSERT(peer && !static_cast<WaitingNode&>(fetch).is_linked());
    const std::size_t bytes = fetch.from.length;
    // If other fetches wait, released memory may let this one begin, too.
    if (pool_.never_fits(bytes) || (waiting_count_ == 0 && pool_.is_unused(bytes))) {
        return fail_fetch(fetch, pool_.why_none(fetch.peer, bytes));
    }
    if (waiting_count_ >= waiting_max || peer->traffic.waiting >= waiting_per_peer_max) {
        const std::string why = "no memory for a large body now, and the queue for it is full: ";
        return fail_fetch(
            fetch, fail(Code::resource_exhausted, why + std::to_string(peer->traffic.waiting) +
                                                      " of this peer, " +
                                                      std::to_string(waiting_count_) + " in all"));
    }
    context_.timers().arm(fetch, fetch.deadline);
    waiting_.push_back(fetch);
    peer->traffic.fetches.push_back(fetch);
    ++waiting_count_;
    ++peer->traffic.waiting;
    transfers_.arm_stall_check();  // The fetches ahead of it may be stalled.
}

// False: no memory is available now.
bool Rendezvous::try_begin(Fetch& fetch) {
    Block* block = pool_.take(fetch.peer, fetch.from.length, Use::receiving);
    if (!block) return false;
    WEFT_ASSERT(!fetch.into && !fetch.failed_unstarted);
    stop_waiting(fetch);
    fetch.into = block;
    // Peers of other contexts may wait for the memory of this fetch.
    if (pool_.is_shared()) transfers_.arm_stall_check();
    TransferSpec spec;
    spec.kind = na::RmaKind::get;
    spec.remote = fetch.from;
    spec.local = block->buffer(fetch.from.length);
    spec.deadline = fetch.deadline;
    spec.grant = fetch.where.grant;
    spec.fills_pool = true;
    spec.fabric = fetch.where.fabric;
    set_transfer(fetch.id, transfers_.start(fetch.peer, std::move(spec), completion_of(fetch.id)));
    return true;
}

// False: the fetch did not wait.
bool Rendezvous::stop_waiting(Fetch& fetch) {
    context_.timers().cancel(fetch);
    WaitingNode& node = fetch;
    if (!node.is_linked()) return false;
    node.unlink();
    core::PeerFetch& peer_node = fetch;
    peer_node.unlink();
    WEFT_ASSERT(waiting_count_ != 0);
    --waiting_count_;
    core::Peer* const peer = context_.find(fetch.peer);
    WEFT_ASSERT(!peer || peer->traffic.waiting != 0);
    if (peer) --peer->traffic.waiting;
    return true;
}

// The completion runs in a later turn, as that of a transfer which fails before it begins.
void Rendezvous::fail_fetch(Fetch& fetch, Status why) {
    if (stop_waiting(fetch)) pool_.notify_room();  // A smaller fetch behind it may find room.
    if (std::exchange(fetch.failed_unstarted, true)) return;
    core::Peer* peer = context_.find(fetch.peer);
    if (peer && peer->state == core::PeerState::up && fetch.where.grant != 0) {
        transfers_.release_grant(*peer, fetch.where.grant);
    }
    set_transfer(fetch.id, transfers_.conclude(completion_of(fetch.id), std::move(why)));
}

TransferCompletion Rendezvous::completion_of(FetchId id) {
    return [this, id](const Status& status) { on_fetched(id, status); };
}

// The fetch may have completed at once.
void Rendezvous::set_transfer(FetchId id, TransferId transfer) {
    if (FetchEntry* entry = fetches_.find(id)) entry->value.transfer = transfer;
}

void Rendezvous::on_fetched(FetchId id, const Status& status) {
    FetchEntry* entry = fetches_.find(id);
    WEFT_ASSERT(entry != nullptr);
    Block* const block = entry->value.into;
    const std::size_t bytes = entry->value.from.length;
    WEFT_ASSERT(!static_cast<WaitingNode&>(entry->value).is_linked() && (block || !status.ok()));
    FetchCompletion done = std::move(entry->value.done);
    fetches_.release(*entry);
    done(status, status.ok() ? ByteView(block->memory().first(bytes)) : ByteView());
    if (block) pool_.release(*block);
}

void Rendezvous::cancel(FetchId id) {
    FetchEntry* entry = fetches_.find(id);
    if (!entry) return;
    Fetch& fetch = entry->value;
    if (fetch.into) return transfers_.cancel(fetch.transfer);
    fail_fetch(fetch, fail(Code::cancelled, "the caller cancelled the operation"));
}

// Bounds the bulk_close frames that wait for a peer which sends large bodies and does not read.
void Rendezvous::decline(core::Peer& peer, const RendezvousBody& where) {
    if (where.grant == 0) return;
    if (peer.queue.frames >= declines_waiting_max) {
        return context_.close_malformed(peer, "more large bodies than it reads replies for");
    }
    transfers_.release_grant(peer, where.grant);
}

// If a peer's fetch can't begin, the peer's further fetches wait, and other peers continue.
void Rendezvous::start_waiting() {
    std::vector<FetchId> waiting;
    waiting_.for_each([&](Fetch& fetch) { waiting.push_back(fetch.id); });
    const std::uint32_t round = ++round_;
    for (const FetchId id : waiting) {
        FetchEntry* entry = fetches_.find(id);  // An earlier completion may have ended it.
        if (!entry || entry->value.failed_unstarted) continue;
        core::Traffic& traffic = core::Context::find(entry->value.peer)->traffic;
        if (traffic.served_round != round && !try_begin(entry->value)) traffic.served_round = round;
    }
}

void Rendezvous::on_peer_down(core::Peer& peer, const Status& why) {
    while (core::PeerFetch* waiting = peer.traffic.fetches.front()) {
        fail_fetch(static_cast<Fetch&>(*waiting), why);
    }
    pool_.discard_blocks_of(peer);
}

}  // namespace weft::bulk
