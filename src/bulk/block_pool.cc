#include "bulk/block_pool.h"

#include <algorithm>
#include <bit>

#include "base/assert.h"

namespace weft::bulk {

static constexpr std::size_t bodies_held_max = 8;
static constexpr std::size_t block_bytes_min = std::size_t{64} << 10;
// Idle blocks beyond this are returned to the arena, which keeps their pages for a while; after
// some idle seconds all of them are. With several contexts idle blocks of all hold a quarter of the
// memory at most.
static constexpr std::size_t idle_bytes_max = std::size_t{32} << 20;
static constexpr std::size_t idle_chunks_max = 4;  // Each a sixteenth, divided by the contexts.
// The block that the peer has just read is in the peer's cache: writing it anew costs a third more
// than writing another block, between distant caches several times as much. Up to this size two
// blocks therefore alternate for sending, and no body is received into a block that was sent.
static constexpr std::size_t alternated_bytes_max = std::size_t{512} << 10;
static constexpr Duration idle_max = 10s;
static constexpr Duration trim_every = 5s;
// Other contexts do not report memory that they return.
static constexpr Duration retry_after = 5ms;

// Four sizes between powers of two: at most a quarter of a block is wasted.
std::size_t BlockPool::block_bytes(std::size_t bytes) {
    if (bytes <= block_bytes_min) return block_bytes_min;
    const std::size_t step = std::bit_floor(bytes) / 4;
    return (bytes + step - 1) / step * step;
}

std::size_t BlockPool::held_bytes_max(std::size_t body_bytes_max) {
    return bodies_held_max * block_bytes(body_bytes_max);
}

BlockPool::BlockPool(core::Context& context, std::shared_ptr<na::Arena> arena,
                     std::size_t body_bytes_max, std::shared_ptr<core::Budget> budget,
                     Function<void()> on_room)
    : context_(context),
      arena_(std::move(arena)),
      block_bytes_max_(block_bytes(body_bytes_max)),
      held_bytes_max_(held_bytes_max(body_bytes_max)),
      held_limit_(std::move(budget), held_bytes_max_),
      idle_bytes_max_(std::min<std::size_t>(idle_bytes_max, idle_chunks_max * held_limit_.spare())),
      on_room_(std::move(on_room)),
      self_(std::make_shared<BlockPool*>(this)) {
    trimming_.owner = this;
    trimming_.fire = [](base::Timer& timer, TimePoint now) {
        BlockPool& self = *static_cast<OwnedTimer&>(timer).owner;
        self.serve_other_contexts();
        self.trim(self.idle_bytes_max_, now - idle_max);
        self.trim_later();
    };
    retry_.owner = this;
    retry_.fire = [](base::Timer& timer, TimePoint) {
        static_cast<OwnedTimer&>(timer).owner->notify_room();
    };
    room_.owner = this;
    room_.run = [](core::Deferred& work) { static_cast<Room&>(work).owner->on_room_(); };
}

// Called after the transfers have ended and the table of regions was shut down.
BlockPool::~BlockPool() {
    *self_ = nullptr;
    context_.timers().cancel(trimming_);
    context_.timers().cancel(retry_);
    if (room_.is_linked()) context_.undefer(room_);
    blocks_.for_each([&](Entry& entry) {
        Block& block = entry.value;
        if (static_cast<IdleNode&>(block).is_linked()) unlink_from_idle(block);
        block.region = Region();
        block.storage = nullptr;
        blocks_.release(entry);
    });
}

// Visits idle blocks that are large enough and not exposed to another peer.
template <class Visit>
void BlockPool::for_each_suitable(core::PeerRef peer, std::size_t bytes, Use use, Visit&& visit) {
    const auto visit_suitable = [&](core::PeerBlock& one) {
        auto& block = static_cast<Block&>(one);
        const bool is_exposed =
            use != Use::sending || !block.region || block.region.ref().length >= bytes;
        if (block.bytes >= bytes && is_exposed) visit(block);
    };
    unexposed_.for_each(visit_suitable);
    if (core::Peer* own = core::Context::find(peer)) {
        own->traffic.idle_blocks.for_each(visit_suitable);
    }
}

// Counts the blocks in use per peer, for is_over_share().
void BlockPool::set_use(Block& block, Use use) {
    const auto counts = [](Use one) {
        return one == Use::sending || one == Use::receiving || one == Use::abandoned;
    };
    const bool did = counts(block.use);
    block.use.move_to(use);
    core::Peer* const peer = did != counts(use) ? core::Context::find(block.peer) : nullptr;
    if (!peer) return;
    core::Traffic::Blocks& blocks = peer->traffic.blocks;
    WEFT_ASSERT(!did || (blocks.count != 0 && blocks.bytes >= block.bytes));
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

// The smallest suitable block.
BlockPool::Block* BlockPool::find_larger(std::size_t bytes, core::PeerRef peer, Use use) {
    Block* best = nullptr;
    for_each_suitable(peer, bytes, use, [&](Block& block) {
        if (!best || block.bytes < best->bytes) best = &block;
    });
    return best;
}

// nullptr: no memory is available now.
BlockPool::Block* BlockPool::make(std::size_t bytes) {
    if (!held_limit_.extend(held_bytes_, bytes)) return nullptr;
    // However this ends: no share is kept for a block that is not made.
    const struct Returning {
        ~Returning() { pool.held_limit_.trim(pool.held_bytes_); }
        BlockPool& pool;
    } returning{*this};
    Result<Buffer> memory = arena_->allocate(bytes, na::Arena::Use::peers);
    if (!memory) return nullptr;
    // Before the record: this may throw.
    auto storage = std::make_shared<Storage>(*std::move(memory), self_);
    Entry* entry = blocks_.take();
    if (!entry) return nullptr;
    Block& block = entry->value;
    storage->block = block.id = entry->id();
    block.use.restart(Use::idle);
    block.bytes = bytes;
    block.storage = std::move(storage);
    held_bytes_ += bytes;
    return &block;
}

std::size_t BlockPool::bytes_idle() {
    std::size_t idle = 0;
    blocks_.for_each(
        [&](Entry& entry) { idle += entry.value.use == Use::idle ? entry.value.bytes : 0; });
    return idle;
}

std::size_t BlockPool::sending_to_clients() {
    std::size_t sending = 0;
    blocks_.for_each([&](Entry& entry) {
        const core::Peer* peer = core::Context::find(entry.value.peer);
        sending += entry.value.use == Use::sending && peer && peer->incoming;
    });
    return sending;
}

bool BlockPool::is_over_share(core::PeerRef peer, std::size_t bytes) {
    const core::Peer* const known = core::Context::find(peer);
    const core::Traffic::Blocks held = known ? known->traffic.blocks : core::Traffic::Blocks();
    return held.bytes + block_bytes(bytes) > held_bytes_max_ / 2 || held.count >= blocks_max / 2;
}

BlockPool::Block* BlockPool::find_or_make(core::PeerRef peer, std::size_t bytes, Use use) {
    WEFT_DCHECK(bytes == block_bytes(bytes) && bytes <= block_bytes_max_);
    const Idle idle = find_idle(bytes, peer, use);
    if (bytes <= alternated_bytes_max) {
        Block* const sending = idle.exposed > 1 ? idle.oldest : nullptr;
        if (Block* own = use == Use::sending ? sending : idle.unexposed) return own;
        // Without a trim() of other blocks, and without giving up the only suitable block.
        if (Block* another = make(bytes)) return another;
    }
    Block* const exposed = idle.newest;
    Block* const plain = idle.unexposed;
    Block* const fitting =
        use == Use::sending ? (exposed ? exposed : plain) : (plain ? plain : exposed);
    if (fitting) return fitting;
    if (Block* block = make(bytes)) return block;
    if (Block* larger = find_larger(bytes, peer, use)) return larger;
    // No idle block is suitable: all are discarded, some of them at once.
    trim(0, TimePoint::min());
    return make(bytes);
}

BlockPool::Block* BlockPool::take(core::PeerRef peer, std::size_t bytes, Use use) {
    Block* block =
        is_over_share(peer, bytes) ? nullptr : find_or_make(peer, block_bytes(bytes), use);
    if (!block) {
        take_failed_ = true;
        if (is_shared() && !retry_.is_linked())
            context_.timers().arm(retry_, saturating_add(context_.now(), retry_after));
        return nullptr;
    }
    if (static_cast<IdleNode&>(*block).is_linked()) unlink_from_idle(*block);
    WEFT_ASSERT(block->use == Use::idle && block->bytes >= bytes);
    block->peer = peer;
    set_use(*block, use);
    keep_headroom();
    return block;
}

Status BlockPool::why_none(core::PeerRef peer, std::size_t bytes) {
    std::string why;
    if (is_over_share(peer, bytes)) {
        why = "this peer's share of the memory for large bodies is in use, " +
              std::to_string(held_bytes_max_ / 2) + " bytes or " + std::to_string(blocks_max / 2) +
              " bodies";
    } else if (!held_limit_.could_extend(held_bytes_, block_bytes(bytes))) {
        why = "the memory for large bodies is in use, " + std::to_string(held_bytes_max_) +
              " bytes, eight times RuntimeOptions::argument_bytes_max (WEFT_ARGUMENT)";
    } else if (blocks_.taken() == blocks_max) {
        why = "all " + std::to_string(blocks_max) + " records of large bodies are in use";
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

void BlockPool::release(Block& block) {
    WEFT_ASSERT(block.use == Use::sending || block.use == Use::receiving);
    // A cancelled transfer may still write to it.
    if (block.storage.use_count() > (block.region ? 2 : 1)) return discard(block, Use::abandoned);
    core::Peer* peer = context_.find(block.peer);
    if (block.region && (!peer || peer->state != core::PeerState::up)) return discard(block);
    set_use(block, Use::idle);
    block.idle_since = context_.now();
    idle_.push_back(block);
    (block.region ? peer->traffic.idle_blocks : unexposed_).push_back(block);
    idle_bytes_ += block.bytes;
    trim(idle_bytes_max_, TimePoint::min());
    trim_later();
    keep_headroom();
    notify_room();
}

void BlockPool::unlink_from_idle(Block& block) {
    WEFT_ASSERT(block.use == Use::idle && idle_bytes_ >= block.bytes);
    static_cast<IdleNode&>(block).unlink();
    static_cast<core::PeerBlock&>(block).unlink();
    idle_bytes_ -= block.bytes;
}

void BlockPool::discard(Block& block, Use until_gone) {
    set_use(block, until_gone);
    if (!block.region) return free(block);
    closing_bytes_ += block.bytes;
    block.region.close([this, id = block.id] {
        Block* closed = find(id);
        if (!closed) return;
        WEFT_ASSERT(closing_bytes_ >= closed->bytes);
        closing_bytes_ -= closed->bytes;
        free(*closed);
    });
}

// on_unused() runs when the last owner releases the memory.
void BlockPool::free(Block& block) {
    block.region = Region();
    block.storage = nullptr;
}

void BlockPool::on_unused(base::SlotId id) {
    Entry* entry = blocks_.find(id);
    WEFT_ASSERT(entry && held_bytes_ >= entry->value.bytes);
    set_use(entry->value, Use::idle);
    held_bytes_ -= entry->value.bytes;
    held_limit_.trim(held_bytes_);
    blocks_.release(*entry);
    notify_room();
}

bool BlockPool::serve_other_contexts() {
    if (!held_limit_.were_others_refused()) return false;
    trim(0, TimePoint::min());
    held_limit_.trim(held_bytes_);
    return true;
}

void BlockPool::notify_room() {
    if (std::exchange(take_failed_, false) && !room_.is_linked()) context_.defer(room_);
}

void BlockPool::discard_blocks_of(core::Peer& peer) {
    while (core::PeerBlock* one = peer.traffic.idle_blocks.front()) {
        auto& block = static_cast<Block&>(*one);
        unlink_from_idle(block);
        discard(block);
    }
}

void BlockPool::trim(std::size_t bytes_kept, TimePoint idle_before) {
    while (Block* oldest = idle_.front()) {
        if (idle_bytes_ <= bytes_kept && oldest->idle_since >= idle_before) return;
        unlink_from_idle(*oldest);
        discard(*oldest);
    }
}

void BlockPool::trim_later() {
    if (idle_.empty() || trimming_.is_linked()) return;
    context_.timers().arm(trimming_, saturating_add(context_.now(), trim_every));
}

// Keeps room for the largest body as long as any block is idle: closing a region takes a turn or
// two.
void BlockPool::keep_headroom() {
    while (Block* oldest = idle_.front()) {
        WEFT_DCHECK(held_bytes_ >= closing_bytes_ + idle_bytes_);
        const bool has_bytes =
            held_limit_.could_extend(held_bytes_ - closing_bytes_, block_bytes_max_);
        if (has_bytes && blocks_.taken() < blocks_max) return;
        unlink_from_idle(*oldest);
        discard(*oldest);
    }
}

}  // namespace weft::bulk
