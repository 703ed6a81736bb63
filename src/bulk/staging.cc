#include "bulk/staging.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/assert.h"

namespace weft::bulk {

static constexpr std::size_t waiting_max = 4096;
// Frames that wait for a peer that still may be owed another answer.
static constexpr std::uint32_t declines_waiting_max = 8192;
static constexpr std::size_t waiting_of_a_peer_max = waiting_max / 4;

static ByteView ref_bytes(const LentBody& where) {
    return {reinterpret_cast<const std::byte*>(where.ref), RegionRef::wire_bytes};
}
static RegionRef ref_of(const LentBody& where) {
    return base::load<RegionRef>(ref_bytes(where).data());
}

Staging::Staging(core::Context& context, Regions& regions, Transfers& transfers,
                 std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max)
    : context_(context),
      regions_(regions),
      transfers_(transfers),
      body_bytes_max_(body_bytes_max),
      pool_(context, std::move(arena), body_bytes_max, [this] { begin_waiting(); }) {
    context_.watch_peers(*this);
    regions_.set_lender(*this);
    transfers_.watch_memory([this] {
        // The arena is the user's, too, who tells nobody what he gives back: so those who wait try
        // again each time.
        if (!waiting_.empty()) pool_.tell_room();
        return memory_waiters();
    });
}

Staging::~Staging() {
    waiting_.for_each([&](Fetch& fetch) { stop_waiting(fetch); });
}

// ---- lending ---------------------------------------------------------------------------------

Result<Loan> Staging::lend(core::Peer& peer, std::size_t bytes, Leaves leaves) {
    WEFT_DCHECK(bytes > 0 && bytes <= body_bytes_max_);
    Block* block = pool_.take(peer.ref, bytes, Use::lent);
    if (!block) return pool_.why_none(peer.ref, bytes);
    const bool is_new = !block->region;
    if (is_new) {
        // What is exposed behind the body may hold bodies of others.
        const std::size_t exposed = BlockPool::block_bytes(bytes);
        std::memset(block->memory().data() + bytes, 0, exposed - bytes);
        static_assert(BlockPool::blocks_max <= Regions::body_regions);
        Result<Region> region =
            regions_.expose(block->buffer(exposed), {Access::read, {}}, Regions::For::body);
        if (!region) {
            pool_.discard(*block);
            return std::move(region).status();
        }
        block->region = *std::move(region);
    }
    block->body_bytes = bytes;
    const RegionRef ref = block->region.ref(0, bytes);
    Loan loan;
    loan.memory = block->memory().first(bytes);
    ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(loan.where.ref), RegionRef::wire_bytes));
    const bool waits = leaves == Leaves::later;
    loan.where.grant = regions_.lend(ref.region, ref.generation, peer, block->id, waits);
    // Where the loan fails, nothing is written over what another peer left in a block that is
    // exposed by now.
    const auto clear = [&] {
        if (is_new) std::memset(loan.memory.data(), 0, bytes);
    };
    if (loan.where.grant == 0) {
        clear();
        pool_.rest(*block);
        return fail(Code::resource_exhausted,
                    "no grant is left to lend a large body to " + peer.uri + " with");
    }
    if (peer.state == core::PeerState::up && !find_key(peer, loan.where)) {
        clear();
        return fail(Code::unimplemented, "memory can't be lent to " + peer.uri);
    }
    return loan;
}

bool Staging::address(core::Peer& peer, LentBody& where) {
    regions_.leaves(peer, where.grant);
    return find_key(peer, where);
}

bool Staging::find_key(core::Peer& peer, LentBody& where) {
    const RegionRef ref = ref_of(where);
    const auto fabric = regions_.fabric_key(ref.region, ref.generation, *peer.endpoint);
    if (fabric) {
        where.fabric = *fabric;
        return true;
    }
    withdraw(peer, where);
    where.grant = 0;
    return false;
}

void Staging::withdraw(core::Peer& peer, const LentBody& where) {
    regions_.withdraw(peer, where.grant);
}

void Staging::on_returned(base::SlotId loan) {
    Block* block = pool_.find(loan);
    WEFT_ASSERT(block != nullptr && block->use == Use::lent);
    pool_.rest(*block);
}

// The peer may be another life from here on: what lies behind the body may be of bodies that the
// life before it was lent.
void Staging::on_kept(base::SlotId loan) {
    Block* block = pool_.find(loan);
    WEFT_ASSERT(block != nullptr && block->use == Use::lent);
    const Bytes all = block->memory().first(block->region.ref().length);
    std::memset(all.data() + block->body_bytes, 0, all.size() - block->body_bytes);
}

// ---- fetching --------------------------------------------------------------------------------

FetchId Staging::fetch(core::Peer& peer, const LentBody& where, TimePoint deadline,
                       FetchCompletion done) {
    FetchEntry* entry = fetches_.take();
    if (!entry) {
        decline(peer, where);
        // No record to wait with: the only case in which a completion runs inside the call.
        done(fail(Code::resource_exhausted,
                  std::to_string(fetches_.taken()) +
                      " large bodies are on their way, and there is no room for one more"),
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
    fetch.is_over = false;
    fetch.done = std::move(done);
    fetch.fire = [](base::Timer& timer, TimePoint) {
        auto& late = static_cast<Fetch&>(timer);
        late.owner->give_up(late, fail(Code::deadline_exceeded, "no memory for the body in time"));
    };
    const FetchId id = fetch.id;
    Result<RegionRef> from = RegionRef::decode(ref_bytes(where));
    if (from) fetch.from = *from;
    if (Status why = judge(fetch, from.status()); !why.ok()) {
        give_up(fetch, std::move(why));
    } else if (peer.traffic.waiting > 0 || !try_begin(fetch)) {
        wait_or_give_up(fetch);
    }
    return id;
}

Status Staging::judge(const Fetch& fetch, const Status& decoded) const {
    if (!decoded.ok()) return decoded;
    if (fetch.where.grant == 0) {
        return fail(Code::unimplemented, "the sender can't lend memory over this transport");
    }
    if (fetch.from.length == 0) return fail(Code::invalid_argument, "a lent body is never empty");
    if (fetch.from.length > body_bytes_max_) {
        return fail(Code::resource_exhausted, "a body of " + std::to_string(fetch.from.length) +
                                                  " bytes exceeds the receiver's limit of " +
                                                  std::to_string(body_bytes_max_));
    }
    return {};
}

// At most two peers hold so much that their own waits for them only.
MemoryWaiters Staging::memory_waiters() {
    bool wanted = false;
    ++round_;
    waiting_.for_each([&](Fetch& fetch) {
        core::Traffic& traffic = core::Context::find(fetch.peer)->traffic;
        if (wanted || std::exchange(traffic.passed, round_) == round_) return;
        wanted = !pool_.is_over_share(fetch.peer, fetch.from.length);
    });
    if (wanted) return MemoryWaiters::for_others;
    return waiting_.empty() ? MemoryWaiters::none : MemoryWaiters::for_themselves;
}

void Staging::wait_or_give_up(Fetch& fetch) {
    core::Peer* const peer = context_.find(fetch.peer);
    const std::size_t bytes = fetch.from.length;
    // What waits already may find room that has come back, and then so may this one.
    if (pool_.never_fits(bytes) || (waiting_count_ == 0 && pool_.is_unused())) {
        return give_up(fetch, pool_.why_none(fetch.peer, bytes));
    }
    if (waiting_count_ >= waiting_max || peer->traffic.waiting >= waiting_of_a_peer_max) {
        const std::string why = "no memory for a large body now, and no more may wait for some: ";
        return give_up(fetch, fail(Code::resource_exhausted,
                                   why + std::to_string(peer->traffic.waiting) + " of this peer, " +
                                       std::to_string(waiting_count_) + " in all"));
    }
    context_.timers().arm(fetch, fetch.deadline);
    waiting_.push_back(fetch);
    peer->traffic.fetches.push_back(fetch);
    ++waiting_count_;
    ++peer->traffic.waiting;
    transfers_.look_later();  // Those in front of it may stand still.
}

// False: there is no memory for it now.
bool Staging::try_begin(Fetch& fetch) {
    Block* block = pool_.take(fetch.peer, fetch.from.length, Use::landing);
    if (!block) return false;
    stop_waiting(fetch);
    fetch.into = block;
    TransferSpec spec;
    spec.kind = na::RmaKind::get;
    spec.remote = fetch.from;
    spec.local = block->buffer(fetch.from.length);
    spec.deadline = fetch.deadline;
    spec.grant = fetch.where.grant;
    spec.fills_pool = true;
    spec.fabric = fetch.where.fabric;
    follow(fetch.id, transfers_.start(fetch.peer, std::move(spec), completion_of(fetch.id)));
    return true;
}

// False: it did not.
bool Staging::stop_waiting(Fetch& fetch) {
    context_.timers().cancel(fetch);
    WaitingNode& node = fetch;
    if (!node.is_linked()) return false;
    node.unlink();
    core::PeerFetch& of_peer = fetch;
    of_peer.unlink();
    --waiting_count_;
    if (core::Peer* peer = context_.find(fetch.peer)) --peer->traffic.waiting;
    return true;
}

// Its outcome comes by a transfer that never begins, in a later turn.
void Staging::give_up(Fetch& fetch, Status why) {
    if (stop_waiting(fetch)) pool_.tell_room();  // A smaller one behind it may find room.
    if (std::exchange(fetch.is_over, true)) return;
    core::Peer* peer = context_.find(fetch.peer);
    if (peer && peer->state == core::PeerState::up && fetch.where.grant != 0) {
        transfers_.give_back(*peer, fetch.where.grant);
    }
    follow(fetch.id, transfers_.conclude(completion_of(fetch.id), std::move(why)));
}

TransferCompletion Staging::completion_of(FetchId id) {
    return [this, id](const Status& status) { on_fetched(id, status); };
}

// It may have completed at once.
void Staging::follow(FetchId id, TransferId transfer) {
    if (FetchEntry* entry = fetches_.find(id)) entry->value.transfer = transfer;
}

void Staging::on_fetched(FetchId id, const Status& status) {
    FetchEntry* entry = fetches_.find(id);
    WEFT_ASSERT(entry != nullptr);
    Block* const block = entry->value.into;
    const std::size_t bytes = entry->value.from.length;
    FetchCompletion done = std::move(entry->value.done);
    fetches_.give_back(*entry);
    done(status, status.ok() ? ByteView(block->memory().first(bytes)) : ByteView());
    if (block) pool_.rest(*block);
}

void Staging::cancel(FetchId id) {
    FetchEntry* entry = fetches_.find(id);
    if (!entry) return;
    Fetch& fetch = entry->value;
    if (fetch.into) return transfers_.cancel(fetch.transfer);
    give_up(fetch, fail(Code::cancelled, "cancelled by the caller"));
}

// A peer that lends and lends and reads nothing would be owed ever more.
void Staging::decline(core::Peer& peer, const LentBody& where) {
    if (where.grant == 0) return;
    if (peer.waiting_frames >= declines_waiting_max) {
        return context_.broken(peer, "it lends more than it reads answers for");
    }
    transfers_.give_back(peer, where.grant);
}

// A peer that can't begin one lets others pass; the rest of its own wait on.
void Staging::begin_waiting() {
    std::vector<FetchId> waiting;
    waiting_.for_each([&](Fetch& fetch) { waiting.push_back(fetch.id); });
    const std::uint32_t round = ++round_;
    for (const FetchId id : waiting) {
        FetchEntry* entry = fetches_.find(id);  // Others may have ended it meanwhile.
        if (!entry || entry->value.is_over) continue;
        core::Traffic& traffic = core::Context::find(entry->value.peer)->traffic;
        if (traffic.passed != round && !try_begin(entry->value)) traffic.passed = round;
    }
}

void Staging::on_peer_down(core::Peer& peer, const Status& why) {
    while (core::PeerFetch* waiting = peer.traffic.fetches.front()) {
        give_up(static_cast<Fetch&>(*waiting), why);
    }
    pool_.forget(peer);
}

}  // namespace weft::bulk
