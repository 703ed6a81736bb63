#include "bulk/staging.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace weft::bulk {

static constexpr std::size_t bodies_held_max = 8;
static constexpr std::size_t block_bytes_min = std::size_t{64} << 10;
// Idle blocks beyond this go back to the arena, which keeps their pages for a while; all of them
// do after some idle seconds.
static constexpr std::size_t idle_bytes_max = std::size_t{32} << 20;
// What the peer has just read lies in its cache, and writing it anew costs a third more than
// writing another block: up to this size two are lent in turn.
static constexpr std::size_t alternated_bytes_max = std::size_t{512} << 10;
static constexpr Duration idle_max = 10s;
static constexpr Duration trim_every = 5s;
static constexpr std::size_t waiting_max = 4096;
// Frames that wait for a peer that still may be owed another answer.
static constexpr std::uint32_t declines_waiting_max = 8192;
static constexpr std::size_t waiting_of_a_peer_max = waiting_max / 4;

// Four sizes between powers of two: a quarter of a block is wasted at most.
static std::size_t block_bytes(std::size_t bytes) {
    if (bytes <= block_bytes_min) return block_bytes_min;
    const std::size_t step = std::bit_floor(bytes) / 4;
    return (bytes + step - 1) / step * step;
}

static RegionRef ref_of(const LentBody& where) {
    return base::load<RegionRef>(reinterpret_cast<const std::byte*>(where.ref));
}

Staging::Staging(core::Context& context, Regions& regions, Transfers& transfers,
                 std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max)
    : context_(context),
      regions_(regions),
      transfers_(transfers),
      arena_(std::move(arena)),
      body_bytes_max_(body_bytes_max),
      held_bytes_max_(bodies_held_max * block_bytes(body_bytes_max)) {
    trimming_.owner = this;
    trimming_.fire = [](base::Timer& timer, TimePoint now) {
        Staging& self = *static_cast<Trimming&>(timer).owner;
        self.trim(idle_bytes_max, now - idle_max);
        self.trim_later();
    };
    context_.watch_peers(*this);
    regions_.set_lender(*this);
}

// The transfers have ended, and the regions are forgotten.
Staging::~Staging() {
    context_.timers().cancel(trimming_);
    blocks_.for_each([&](BlockEntry& entry) {
        if (entry.value.is_linked()) entry.value.unlink();
        free(entry.value);
    });
}

// ---- blocks ----------------------------------------------------------------------------------

// Unexposed, or exposed to no other peer.
Staging::Idle Staging::find_idle(std::size_t bytes, core::PeerRef peer) {
    Idle idle;
    idle_.for_each([&](Block& block) {
        if (block.memory->size() != bytes) return;
        if (!block.region) {
            idle.unexposed = &block;
        } else if (block.peer == peer) {
            if (idle.exposed++ == 0) idle.oldest = &block;
            idle.newest = &block;
        }
    });
    return idle;
}

// nullptr: there is no memory for it now.
Staging::Block* Staging::make(std::size_t bytes) {
    if (held_bytes_ + bytes > held_bytes_max_) trim(0, TimePoint::min());
    if (held_bytes_ + bytes > held_bytes_max_) return nullptr;
    Result<Buffer> memory = arena_->allocate(bytes);
    BlockEntry* entry = memory ? blocks_.take() : nullptr;
    if (!entry) return nullptr;
    Block& block = entry->value;
    block.id = entry->id();
    block.memory = std::make_shared<Buffer>(*std::move(memory));
    held_bytes_ += bytes;
    return &block;
}

bool Staging::is_over_share(core::PeerRef peer, std::size_t bytes) {
    std::size_t held = bytes;
    blocks_.for_each([&](BlockEntry& entry) {
        const Block& block = entry.value;
        const bool used = block.use == Use::lent || block.use == Use::landing;
        if (used && block.peer == peer) held += block.memory->size();
    });
    return held > held_bytes_max_ / 2;
}

// nullptr: there is none for this peer now.
Staging::Block* Staging::take(core::PeerRef peer, std::size_t bytes, Use use) {
    if (is_over_share(peer, bytes)) return nullptr;
    Block* block = nullptr;
    if (use == Use::lent && bytes <= alternated_bytes_max) {
        const Idle idle = find_idle(bytes, peer);
        block = idle.exposed > 1 ? idle.oldest : idle.unexposed;
        // Not at the price of others' blocks, and least of all of the one that there is.
        if (!block && held_bytes_ + bytes <= held_bytes_max_) block = make(bytes);
    }
    if (!block) {
        const Idle idle = find_idle(bytes, peer);
        Block* const exposed = idle.newest;
        Block* const plain = idle.unexposed;
        block = use == Use::lent ? (exposed ? exposed : plain) : (plain ? plain : exposed);
    }
    if (!block) block = make(bytes);
    if (!block) return nullptr;
    if (block->is_linked()) {
        block->unlink();
        idle_bytes_ -= bytes;
    }
    block->use = use;
    block->peer = peer;
    return block;
}

// Back from its use.
void Staging::rest(Block& block) {
    // A transfer that was cancelled may still write there.
    if (block.memory.use_count() > (block.region ? 2 : 1)) return discard(block);
    const core::Peer* peer = context_.find(block.peer);
    if (block.region && (!peer || peer->state != core::PeerState::up)) return discard(block);
    block.use = Use::idle;
    block.idle_since = context_.now();
    idle_.push_back(block);
    idle_bytes_ += block.memory->size();
    trim(idle_bytes_max, TimePoint::min());
    trim_later();
    begin_waiting();
}

// To the arena, when nobody can touch it any more.
void Staging::discard(Block& block) {
    block.use = Use::closing;
    if (!block.region) return free(block);
    block.region.close([this, id = block.id] {
        if (BlockEntry* entry = blocks_.find(id)) free(entry->value);
    });
}

void Staging::free(Block& block) {
    held_bytes_ -= block.memory->size();
    block.region = Region();
    block.memory = nullptr;
    blocks_.give_back(base::SlotTable<Block>::entry_of(block));
}

void Staging::trim(std::size_t bytes_kept, TimePoint idle_before) {
    while (Block* oldest = idle_.front()) {
        if (idle_bytes_ <= bytes_kept && oldest->idle_since >= idle_before) return;
        oldest->unlink();
        idle_bytes_ -= oldest->memory->size();
        discard(*oldest);
    }
}

void Staging::trim_later() {
    if (idle_.empty() || trimming_.is_linked()) return;
    context_.timers().arm(trimming_, saturating_add(context_.now(), trim_every));
}

// ---- lending ---------------------------------------------------------------------------------

Result<Loan> Staging::lend(core::Peer& peer, std::size_t bytes) {
    WEFT_DCHECK(bytes > 0 && bytes <= body_bytes_max_);
    const auto full = [] {
        return fail(Code::resource_exhausted, "the memory for large bodies is in use");
    };
    Block* block = take(peer.ref, block_bytes(bytes), Use::lent);
    if (!block) return full();
    if (!block->region) {
        Result<Region> region =
            regions_.expose(Buffer(block->memory, block->memory->bytes()), {Access::read, {}});
        if (!region) {
            discard(*block);
            return std::move(region).status();
        }
        block->region = *std::move(region);
    }
    const RegionRef ref = block->region.ref(0, bytes);
    Loan loan;
    loan.memory = block->memory->bytes().first(bytes);
    ref.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(loan.where.ref), RegionRef::wire_bytes));
    loan.where.grant = regions_.lend(ref.region, ref.generation, peer, block->id);
    if (loan.where.grant == 0) {
        rest(*block);
        return full();
    }
    if (peer.state == core::PeerState::up && !address(peer, loan.where)) {
        return fail(Code::unimplemented, "memory can't be lent to " + peer.uri);
    }
    return loan;
}

bool Staging::address(core::Peer& peer, LentBody& where) {
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
    BlockEntry* entry = blocks_.find(loan);
    WEFT_ASSERT(entry != nullptr && entry->value.use == Use::lent);
    rest(entry->value);
}

// ---- fetching --------------------------------------------------------------------------------

FetchId Staging::fetch(core::Peer& peer, const LentBody& where, TimePoint deadline,
                       FetchCompletion done) {
    FetchEntry* entry = fetches_.take();
    if (!entry) {
        decline(peer, where);
        // No record to wait with: the only case in which a completion runs inside the call.
        done(fail(Code::resource_exhausted, "too many large bodies are on their way"), {});
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
    Result<RegionRef> from = RegionRef::decode(as_bytes(where));
    if (from) fetch.from = *from;
    if (Status why = judge(fetch, from.status()); !why.ok()) {
        give_up(fetch, std::move(why));
    } else if (!waiting_.empty() || !try_begin(fetch)) {
        wait(fetch);
    }
    return id;
}

ByteView Staging::as_bytes(const LentBody& where) {
    return {reinterpret_cast<const std::byte*>(where.ref), RegionRef::wire_bytes};
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

// The peers that have their share let others pass.
void Staging::wait(Fetch& fetch) {
    std::size_t of_this_peer = 0;
    for (const FetchId id : waiting_) {
        const FetchEntry* other = fetches_.find(id);
        if (other && other->value.peer == fetch.peer) ++of_this_peer;
    }
    if (waiting_.size() >= waiting_max || of_this_peer >= waiting_of_a_peer_max) {
        return give_up(fetch, fail(Code::resource_exhausted, "too many large bodies wait already"));
    }
    context_.timers().arm(fetch, fetch.deadline);
    waiting_.push_back(fetch.id);
}

// False: there is no memory for it now.
bool Staging::try_begin(Fetch& fetch) {
    Block* block = take(fetch.peer, block_bytes(fetch.from.length), Use::landing);
    if (!block) return false;
    context_.timers().cancel(fetch);
    fetch.into = block;
    TransferSpec spec;
    spec.kind = na::RmaKind::get;
    spec.remote = fetch.from;
    spec.local = Buffer(block->memory, block->memory->bytes().first(fetch.from.length));
    spec.deadline = fetch.deadline;
    spec.grant = fetch.where.grant;
    spec.fabric = fetch.where.fabric;
    follow(fetch.id, transfers_.start(fetch.peer, std::move(spec), completion_of(fetch.id)));
    return true;
}

// Its outcome comes by a transfer that never begins, in a later turn.
void Staging::give_up(Fetch& fetch, Status why) {
    context_.timers().cancel(fetch);
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
    done(status, status.ok() ? ByteView(block->memory->bytes().first(bytes)) : ByteView());
    if (block) rest(*block);
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

void Staging::begin_waiting() {
    if (std::exchange(is_beginning_, true)) return;  // One that ended at once.
    std::vector<core::PeerRef> passed;  // Those with their share: the rest of theirs wait on.
    std::erase_if(waiting_, [&](FetchId id) {
        FetchEntry* entry = fetches_.find(id);
        if (!entry || entry->value.is_over) return true;
        const core::PeerRef peer = entry->value.peer;
        if (std::find(passed.begin(), passed.end(), peer) != passed.end()) return false;
        if (try_begin(entry->value)) return true;
        passed.push_back(peer);
        return false;
    });
    is_beginning_ = false;
}

void Staging::on_peer_down(core::Peer& peer, const Status& why) {
    fetches_.for_each([&](FetchEntry& entry) {
        Fetch& fetch = entry.value;
        if (fetch.peer == peer.ref && !fetch.into) give_up(fetch, why);
    });
    // Whoever comes next under this address is another.
    idle_.for_each([&](Block& block) {
        if (block.peer != peer.ref || !block.region) return;
        block.unlink();
        idle_bytes_ -= block.memory->size();
        discard(block);
    });
}

}  // namespace weft::bulk
