// Memory for bodies that do not fit a message: blocks of a few sizes, taken from the arena, kept
// and exposed once.
//
// Life of a block: idle -> lent (a peer fetches it, and returns the grant) -> idle, or
//                  idle -> landing (a fetch writes it, the receiver reads it) -> idle.
// A block that was lent stays exposed while it is idle, so that a steady flow to one peer registers
// and allocates nothing. No other peer is ever given it: it goes back to the arena instead, after
// the fence, and counts as held until its memory has no owner. What others left in it is
// overwritten by the first body and by zeroes behind that, as far as it is exposed.
#pragma once

#include <memory>

#include <weft/buffer.h>
#include <weft/function.h>
#include <weft/region.h>

#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "core/context.h"
#include "na/arena.h"

namespace weft::bulk {

class BlockPool {
  public:
    static constexpr std::uint32_t blocks_max = 1024;

    enum class Use : std::uint8_t {
        idle,
        lent,
        landing,
        closing,    // Gone after the fence.
        abandoned,  // Its peer was asked for bytes that may still come: gone with its transfers.
    };
    struct Kept;                          // The memory, with all who use it as owners.
    struct IdleNode : base::ListNode {};  // In idle_ while idle.
    // PeerBlock: meanwhile among those of the peer that may read it, or in unexposed_.
    struct Block : IdleNode, core::PeerBlock {
        base::SlotId id;
        Use use = Use::idle;
        std::size_t bytes = 0;
        std::shared_ptr<Kept> kept;  // Its region and its transfers are owners, too.
        Region region;               // Once it was lent,
        std::size_t body_bytes = 0;  // with a body of so many bytes last.
        core::PeerRef peer;          // To whom it is or was lent; whose body lands there.
        TimePoint idle_since;

        Bytes memory() const;
        Buffer buffer(std::size_t first_bytes) const;
    };

    // Memory for eight bodies of body_bytes_max is held at most, in blocks_max blocks, half of
    // either for one peer. `on_room` runs in a later turn when take() may give what it did not.
    // Thread: the context's, for everything here.
    BlockPool(core::Context& context, std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max,
              Function<void()> on_room);
    ~BlockPool();
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    // The size of the block that such a body gets.
    static std::size_t block_bytes(std::size_t bytes);
    // For lent: one that this peer may read already, if there is one. nullptr: there is none for it
    // now.
    Block* take(core::PeerRef peer, std::size_t bytes, Use use);
    // RESOURCE_EXHAUSTED, with the limit that is met, after take() gave none.
    Status why_none(core::PeerRef peer, std::size_t bytes);
    // The arena is smaller than a block of that size, however much others give back.
    bool never_fits(std::size_t bytes) const { return block_bytes(bytes) > arena_->size(); }
    // Nothing of the arena is in use, so that nothing can come back.
    bool is_unused() const { return held_bytes_ == 0 && arena_->allocated_bytes() == 0; }
    // Whether there is none for it because of what this peer holds itself.
    bool is_over_share(core::PeerRef peer, std::size_t bytes);
    Block* find(base::SlotId id);
    // Back from its use.
    void rest(Block& block);
    // To the arena, when nobody can touch it any more.
    void discard(Block& block, Use until_gone = Use::closing);
    // Whoever asked in vain may ask again: has `on_room` run.
    void tell_room();
    // The peer is gone: whoever comes next under its address is another.
    void forget(core::Peer& peer);

    std::size_t bytes_held() const { return held_bytes_; }
    // Of these in no use now.
    std::size_t bytes_idle();
    // To peers that came to us.
    std::size_t lent_to_clients();

  private:
    using Entry = base::SlotTable<Block>::Entry;
    struct Trimming : base::Timer {
        BlockPool* owner = nullptr;
    };
    struct Room : core::Deferred {
        BlockPool* owner = nullptr;
    };
    // Idle blocks of a size: without a region, and those that one peer may read.
    struct Idle {
        Block* unexposed = nullptr;
        Block* oldest = nullptr;
        Block* newest = nullptr;
        std::size_t exposed = 0;
    };

    template <class Visit>
    void for_each_suitable(core::PeerRef peer, std::size_t bytes, Use use, Visit&& visit);
    static void move_to(Block& block, Use use);
    Idle find_idle(std::size_t bytes, core::PeerRef peer, Use use);
    Block* find_larger(std::size_t bytes, core::PeerRef peer, Use use);
    Block* find_or_make(core::PeerRef peer, std::size_t bytes, Use use);
    Block* make(std::size_t bytes);
    bool has_room(std::size_t bytes) const { return held_bytes_ + bytes <= held_bytes_max_; }
    void leave_idle(Block& block);
    void trim(std::size_t bytes_kept, TimePoint idle_before);
    void trim_later();
    void keep_headroom();
    void free(Block& block);
    void on_unused(base::SlotId id);

    core::Context& context_;
    const std::shared_ptr<na::Arena> arena_;
    const std::size_t block_bytes_max_;
    const std::size_t held_bytes_max_;
    Function<void()> on_room_;
    const std::shared_ptr<BlockPool*> self_;  // nullptr in it: memory outlives the pool.
    base::SlotTable<Block> blocks_{blocks_max};
    base::IntrusiveList<Block, IdleNode> idle_;       // Those used last at the end.
    base::IntrusiveList<core::PeerBlock> unexposed_;  // Of those, any peer may have.
    std::size_t held_bytes_ = 0;                      // Of all blocks,
    std::size_t closing_bytes_ = 0;  // of those that will be gone in a turn or two,
    std::size_t idle_bytes_ = 0;     // and of those that are idle.
    bool asked_in_vain_ = false;
    Room room_;
    Trimming trimming_;
};

struct BlockPool::Kept {
    Kept(Buffer of, std::shared_ptr<BlockPool*> in) : memory(std::move(of)), pool(std::move(in)) {}
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;
    ~Kept() {
        if (block && *pool) (*pool)->on_unused(block);
    }

    const Buffer memory;
    const std::shared_ptr<BlockPool*> pool;  // nullptr in it: the pool is gone.
    base::SlotId block;                      // Empty until it has a record.
};

inline Bytes BlockPool::Block::memory() const { return kept->memory.bytes(); }
inline Buffer BlockPool::Block::buffer(std::size_t first_bytes) const {
    return Buffer(kept, memory().first(first_bytes));
}

}  // namespace weft::bulk
