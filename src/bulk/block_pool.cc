#include "bulk/block_pool.h"

#include <algorithm>
#include <bit>

namespace weft::bulk {

static constexpr std::size_t bodies_held_max = 8;
static constexpr std::size_t block_bytes_min = std::size_t{64} << 10;
// Idle blocks beyond this go back to the arena, which keeps their pages for a while; all of them
// do after some idle seconds.
static constexpr std::size_t idle_bytes_max = std::size_t{32} << 20;
// What the peer has just read lies in its cache, and writing it anew costs a third more than
// writing another block, between far caches several times as much: up to this size two are lent in
// turn, and no body lands in what was lent.
static constexpr std::size_t alternated_bytes_max = std::size_t{512} << 10;
static constexpr Duration idle_max = 10s;
static constexpr Duration trim_every = 5s;

// Four sizes between powers of two: a quarter of a block is wasted at most.
std::size_t BlockPool::block_bytes(std::size_t bytes) {
    if (bytes <= block_bytes_min) return block_bytes_min;
    const std::size_t step = std::bit_floor(bytes) / 4;
    return (bytes + step - 1) / step * step;
}

BlockPool::BlockPool(core::Context& context, std::shared_ptr<na::Arena> arena,
                     std::size_t body_bytes_max, Function<void()> on_room)
    : context_(context),
      arena_(std::move(arena)),
      block_bytes_max_(block_bytes(body_bytes_max)),
      held_bytes_max_(bodies_held_max * block_bytes_max_),
      on_room_(std::move(on_room)),
      self_(std::make_shared<BlockPool*>(this)) {
    trimming_.owner = this;
    trimming_.fire = [](base::Timer& timer, TimePoint now) {
        BlockPool& self = *static_cast<Trimming&>(timer).owner;
        self.trim(idle_bytes_max, now - idle_max);
        self.trim_later();
    };
    room_.owner = this;
    room_.run = [](core::Deferred& work) { static_cast<Room&>(work).owner->on_room_(); };
}

// The transfers have ended, and the regions are forgotten.
BlockPool::~BlockPool() {
    *self_ = nullptr;
    context_.timers().cancel(trimming_);
    if (room_.is_linked()) context_.undefer(room_);
    blocks_.for_each([&](Entry& entry) {
        Block& block = entry.value;
        if (static_cast<IdleNode&>(block).is_linked()) leave_idle(block);
        block.region = Region();
        block.kept = nullptr;
        blocks_.give_back(entry);
    });
}

// Unexposed, or exposed to no other peer, and far enough.
template <class Visit>
void BlockPool::for_each_suitable(core::PeerRef peer, std::size_t bytes, Use use, Visit&& visit) {
    const auto visit_suitable = [&](core::PeerBlock& one) {
        auto& block = static_cast<Block&>(one);
        const bool is_exposed =
            use != Use::lent || !block.region || block.region.ref().length >= bytes;
        if (block.bytes >= bytes && is_exposed) visit(block);
    };
    unexposed_.for_each(visit_suitable);
    if (core::Peer* own = core::Context::find(peer)) {
        own->traffic.idle_blocks.for_each(visit_suitable);
    }
}

// Counts what is in use for a peer, for is_over_share().
void BlockPool::move_to(Block& block, Use use) {
    const auto counts = [](Use one) {
        return one == Use::lent || one == Use::landing || one == Use::abandoned;
    };
    const bool did = counts(std::exchange(block.use, use));
    core::Peer* const peer = did != counts(use) ? core::Context::find(block.peer) : nullptr;
    if (!peer) return;
    core::Traffic::Blocks& blocks = peer->traffic.blocks;
    blocks.count = did ? blocks.count - 1 : blocks.count + 1;
    blocks.bytes = did ? blocks.bytes - block.bytes : blocks.bytes + block.bytes;
}

BlockPool::Idle BlockPool::find_idle(std::size_t bytes, core::PeerRef peer, Use use) {
    Idle idle;
    for_each_suitable(peer, bytes, use, [&](Block& block) {
        if (block.bytes != bytes) return;
        if (!block.region) {
            idle.unexposed = &block;
        } else {
            if (idle.exposed++ == 0) idle.oldest = &block;
            idle.newest = &block;
        }
    });
    return idle;
}

// The smallest that would do.
BlockPool::Block* BlockPool::find_larger(std::size_t bytes, core::PeerRef peer, Use use) {
    Block* best = nullptr;
    for_each_suitable(peer, bytes, use, [&](Block& block) {
        if (!best || block.bytes < best->bytes) best = &block;
    });
    return best;
}

// nullptr: there is no memory for it now.
BlockPool::Block* BlockPool::make(std::size_t bytes) {
    if (!has_room(bytes)) return nullptr;
    Result<Buffer> memory = arena_->allocate(bytes, na::Arena::Use::peers);
    if (!memory) return nullptr;
    // Before the record: this may throw.
    auto kept = std::make_shared<Kept>(*std::move(memory), self_);
    Entry* entry = blocks_.take();
    if (!entry) return nullptr;
    Block& block = entry->value;
    kept->block = block.id = entry->id();
    block.use = Use::idle;
    block.bytes = bytes;
    block.kept = std::move(kept);
    held_bytes_ += bytes;
    return &block;
}

std::size_t BlockPool::bytes_idle() {
    std::size_t idle = 0;
    blocks_.for_each(
        [&](Entry& entry) { idle += entry.value.use == Use::idle ? entry.value.bytes : 0; });
    return idle;
}

std::size_t BlockPool::lent_to_clients() {
    std::size_t lent = 0;
    blocks_.for_each([&](Entry& entry) {
        const core::Peer* peer = core::Context::find(entry.value.peer);
        lent += entry.value.use == Use::lent && peer && peer->incoming;
    });
    return lent;
}

bool BlockPool::is_over_share(core::PeerRef peer, std::size_t bytes) {
    const core::Peer* const known = core::Context::find(peer);
    const core::Traffic::Blocks held = known ? known->traffic.blocks : core::Traffic::Blocks();
    return held.bytes + block_bytes(bytes) > held_bytes_max_ / 2 || held.count >= blocks_max / 2;
}

BlockPool::Block* BlockPool::find_or_make(core::PeerRef peer, std::size_t bytes, Use use) {
    const Idle idle = find_idle(bytes, peer, use);
    if (bytes <= alternated_bytes_max) {
        Block* const lent = idle.exposed > 1 ? idle.oldest : nullptr;
        if (Block* own = use == Use::lent ? lent : idle.unexposed) return own;
        // Not at the price of others' blocks, and least of all of the one that there is.
        if (Block* another = make(bytes)) return another;
    }
    Block* const exposed = idle.newest;
    Block* const plain = idle.unexposed;
    Block* const fitting =
        use == Use::lent ? (exposed ? exposed : plain) : (plain ? plain : exposed);
    if (fitting) return fitting;
    if (Block* block = make(bytes)) return block;
    if (Block* larger = find_larger(bytes, peer, use)) return larger;
    // Nothing idle is of use for it: all of that goes, some of it at once.
    trim(0, TimePoint::min());
    return make(bytes);
}

BlockPool::Block* BlockPool::take(core::PeerRef peer, std::size_t bytes, Use use) {
    Block* block =
        is_over_share(peer, bytes) ? nullptr : find_or_make(peer, block_bytes(bytes), use);
    if (!block) {
        asked_in_vain_ = true;
        return nullptr;
    }
    if (static_cast<IdleNode&>(*block).is_linked()) leave_idle(*block);
    block->peer = peer;
    move_to(*block, use);
    keep_headroom();
    return block;
}

Status BlockPool::why_none(core::PeerRef peer, std::size_t bytes) {
    std::string why;
    if (is_over_share(peer, bytes)) {
        why = "this peer's share of the memory for large bodies is in use, " +
              std::to_string(held_bytes_max_ / 2) + " bytes or " + std::to_string(blocks_max / 2) +
              " bodies";
    } else if (!has_room(block_bytes(bytes))) {
        why = "the memory for large bodies is in use, " + std::to_string(held_bytes_max_) +
              " bytes, eight times RuntimeOptions::argument_bytes_max (WEFT_ARGUMENT)";
    } else if (blocks_.taken() == blocks_max) {
        why = "all " + std::to_string(blocks_max) + " bodies that may be held are";
    } else {
        why =
            "the arena has none left (RuntimeOptions::arena_bytes_max, WEFT_ARENA; `ulimit -v`; "
            "`ulimit -l` of a process that locks its memory)";
    }
    return fail(Code::resource_exhausted,
                "no memory for a body of " + std::to_string(bytes) + " bytes: " + std::move(why));
}

BlockPool::Block* BlockPool::find(base::SlotId id) {
    Entry* entry = blocks_.find(id);
    return entry ? &entry->value : nullptr;
}

void BlockPool::rest(Block& block) {
    // A transfer that was cancelled may still write there.
    if (block.kept.use_count() > (block.region ? 2 : 1)) return discard(block, Use::abandoned);
    core::Peer* peer = context_.find(block.peer);
    if (block.region && (!peer || peer->state != core::PeerState::up)) return discard(block);
    move_to(block, Use::idle);
    block.idle_since = context_.now();
    idle_.push_back(block);
    (block.region ? peer->traffic.idle_blocks : unexposed_).push_back(block);
    idle_bytes_ += block.bytes;
    trim(idle_bytes_max, TimePoint::min());
    trim_later();
    keep_headroom();
    tell_room();
}

void BlockPool::leave_idle(Block& block) {
    static_cast<IdleNode&>(block).unlink();
    static_cast<core::PeerBlock&>(block).unlink();
    idle_bytes_ -= block.bytes;
}

void BlockPool::discard(Block& block, Use until_gone) {
    move_to(block, until_gone);
    if (!block.region) return free(block);
    closing_bytes_ += block.bytes;
    block.region.close([this, id = block.id] {
        Block* closed = find(id);
        if (!closed) return;
        closing_bytes_ -= closed->bytes;
        free(*closed);
    });
}

// When the last owner goes it is gone.
void BlockPool::free(Block& block) {
    block.region = Region();
    block.kept = nullptr;
}

void BlockPool::on_unused(base::SlotId id) {
    Entry* entry = blocks_.find(id);
    move_to(entry->value, Use::idle);
    held_bytes_ -= entry->value.bytes;
    blocks_.give_back(*entry);
    tell_room();
}

void BlockPool::tell_room() {
    if (std::exchange(asked_in_vain_, false) && !room_.is_linked()) context_.defer(room_);
}

void BlockPool::forget(core::Peer& peer) {
    while (core::PeerBlock* one = peer.traffic.idle_blocks.front()) {
        auto& block = static_cast<Block&>(*one);
        leave_idle(block);
        discard(block);
    }
}

void BlockPool::trim(std::size_t bytes_kept, TimePoint idle_before) {
    while (Block* oldest = idle_.front()) {
        if (idle_bytes_ <= bytes_kept && oldest->idle_since >= idle_before) return;
        leave_idle(*oldest);
        discard(*oldest);
    }
}

void BlockPool::trim_later() {
    if (idle_.empty() || trimming_.is_linked()) return;
    context_.timers().arm(trimming_, saturating_add(context_.now(), trim_every));
}

// So that the largest body finds room at once as long as anything is idle: to close a region takes
// a turn or two.
void BlockPool::keep_headroom() {
    while (Block* oldest = idle_.front()) {
        const bool has_bytes = held_bytes_ - closing_bytes_ + block_bytes_max_ <= held_bytes_max_;
        if (has_bytes && blocks_.taken() < blocks_max) return;
        leave_idle(*oldest);
        discard(*oldest);
    }
}

}  // namespace weft::bulk
