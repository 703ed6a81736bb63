// Memory for bodies that do not fit a message: blocks of a few sizes, allocated from the arena,
// kept and exposed once.
//
// A block that was sent stays exposed while it is idle, so that a steady flow to one peer registers
// and allocates nothing. No other peer ever gets it: instead it returns to the arena after the
// fence, and counts as held until its memory has no owner. Earlier contents of a new block are
// overwritten by the first body and by zeroes behind it, as far as the block is exposed.
#pragma once

#include <memory>

#include <weft/buffer.h>
#include <weft/function.h>
#include <weft/region.h>

#include "base/buffer_access.h"
#include "base/intrusive_list.h"
#include "base/slot_table.h"
#include "base/state.h"
#include "base/timer_wheel.h"
#include "core/budget.h"
#include "core/context.h"
#include "na/arena.h"

namespace weft::bulk {

class BlockPool {
  public:
    static constexpr std::uint32_t blocks_max = 1024;

    enum class Use : std::uint8_t {
        idle,
        sending,
        receiving,
        closing,    // Freed after the fence.
        abandoned,  // Bytes of its peer may still arrive: freed with the transfers.
    };
    friend constexpr bool can_move(Use from, Use to) {
        switch (to) {
            case Use::idle: return from != Use::idle;
            case Use::sending:
            case Use::receiving: return from == Use::idle;
            case Use::closing: return from != Use::closing && from != Use::abandoned;
            case Use::abandoned: return from == Use::sending || from == Use::receiving;
        }
        return false;
    }
    struct Storage;                       // The memory; all its users own it.
    struct IdleNode : base::ListNode {};  // In idle_ while idle.
    // PeerBlock: while idle in the list of the peer that may read it, or in unexposed_.
    struct Block : IdleNode, core::PeerBlock {
        base::SlotId id;
        base::State<Use> use{Use::idle};
        std::size_t bytes = 0;
        std::shared_ptr<Storage> storage;  // Also owned by its region and its transfers.
        Region region;                     // Once it was sent,
        std::size_t body_bytes = 0;        // last with a body of so many bytes.
        core::PeerRef peer;                // The peer that fetches or sends the body.
        TimePoint idle_since;

        Bytes memory() const;
        Buffer buffer(std::size_t first_bytes) const;
    };

    // At most memory for eight bodies of body_bytes_max is held, in at most blocks_max blocks; one
    // peer may use half of either. The memory is that of all contexts of a runtime: `budget`;
    // nullptr: there is one. `on_room` runs in a later turn when a failed take() may succeed; with
    // several contexts also from time to time. Thread: the context's, for all methods.
    BlockPool(core::Context& context, std::shared_ptr<na::Arena> arena, std::size_t body_bytes_max,
              std::shared_ptr<core::Budget> budget, Function<void()> on_room);
    ~BlockPool();
    BlockPool(const BlockPool&) = delete;
    BlockPool& operator=(const BlockPool&) = delete;

    // The size of the block for a body of so many bytes.
    static std::size_t block_bytes(std::size_t bytes);
    // The memory for all bodies, of which the largest has body_bytes_max.
    static std::size_t held_bytes_max(std::size_t body_bytes_max);
    // For `sending` it prefers a block that this peer may read already. nullptr: no block is
    // available now.
    Block* take(core::PeerRef peer, std::size_t bytes, Use use);
    // RESOURCE_EXHAUSTED, naming the limit that is reached, after take() returned nullptr.
    Status why_none(core::PeerRef peer, std::size_t bytes);
    // The arena is smaller than such a block, so waiting is useless.
    bool never_fits(std::size_t bytes) const { return block_bytes(bytes) > arena_->size(); }
    // Nothing can be released that a body of so many bytes lacks: no memory of the arena is in use,
    // and no other context has what is left of the limit.
    bool is_unused(std::size_t bytes) const {
        return held_bytes_ == 0 && arena_->allocated_bytes() == 0 &&
               held_limit_.could_extend(0, block_bytes(bytes));
    }
    // Whether the share of this peer is used up.
    bool is_over_share(core::PeerRef peer, std::size_t bytes);
    Block* find(base::SlotId id);
    // Ends the use of a block.
    void release(Block& block);
    // Returns the block to the arena once no peer can access it.
    void discard(Block& block, Use until_gone = Use::closing);
    // Runs `on_room` in a later turn if a take() failed.
    void notify_room();
    // Whether other contexts use the same memory.
    bool is_shared() const { return !held_limit_.is_alone(); }
    // To be called from time to time while bodies are in transfer. True: other contexts lack memory
    // since the last call; idle blocks are discarded for them.
    bool serve_other_contexts();
    // The peer disconnected: its idle blocks are discarded, because the next process at its address
    // may be another.
    void discard_blocks_of(core::Peer& peer);

    std::size_t bytes_held() const { return held_bytes_; }
    // Bytes of idle blocks.
    std::size_t bytes_idle();
    // The number of blocks being sent to peers that connected to this process.
    std::size_t sending_to_clients();

  private:
    using Entry = base::SlotTable<Block>::Entry;
    struct OwnedTimer : base::Timer {
        BlockPool* owner = nullptr;
    };
    struct Room : core::Deferred {
        BlockPool* owner = nullptr;
    };
    // Idle blocks of one size: one without a region, and those that one peer may read.
    struct Idle {
        Block* unexposed = nullptr;
        Block* oldest = nullptr;
        Block* newest = nullptr;
        std::size_t exposed = 0;
    };

    template <class Visit>
    void for_each_suitable(core::PeerRef peer, std::size_t bytes, Use use, Visit&& visit);
    static void set_use(Block& block, Use use);
    Idle find_idle(std::size_t bytes, core::PeerRef peer, Use use);
    Block* find_larger(std::size_t bytes, core::PeerRef peer, Use use);
    Block* find_or_make(core::PeerRef peer, std::size_t bytes, Use use);
    Block* make(std::size_t bytes);
    void unlink_from_idle(Block& block);
    void trim(std::size_t bytes_kept, TimePoint idle_before);
    void trim_later();
    void keep_headroom();
    void free(Block& block);
    void on_unused(base::SlotId id);

    // ---- constant
    core::Context& context_;
    const std::shared_ptr<na::Arena> arena_;
    const std::size_t block_bytes_max_;
    const std::size_t held_bytes_max_;
    core::Budget::Share held_limit_;
    const std::size_t idle_bytes_max_;
    Function<void()> on_room_;
    const std::shared_ptr<BlockPool*> self_;  // Holds nullptr once the pool is gone.

    // ---- blocks
    base::SlotTable<Block> blocks_{blocks_max};
    base::IntrusiveList<Block, IdleNode> idle_;       // Least recently used first.
    base::IntrusiveList<core::PeerBlock> unexposed_;  // Idle, for any peer.
    std::size_t held_bytes_ = 0;                      // Of all blocks,
    std::size_t closing_bytes_ = 0;  // of blocks that will be freed in a turn or two,
    std::size_t idle_bytes_ = 0;     // and of idle blocks.
    bool take_failed_ = false;
    Room room_;
    OwnedTimer trimming_;
    OwnedTimer retry_;  // Of a take() that failed, for memory that other contexts return.
};

struct BlockPool::Storage {
    Storage(Buffer of, std::shared_ptr<BlockPool*> in)
        : memory(std::move(of)), pool(std::move(in)) {}
    Storage(const Storage&) = delete;
    Storage& operator=(const Storage&) = delete;
    ~Storage() {
        if (block && *pool) (*pool)->on_unused(block);
    }

    const Buffer memory;
    const std::shared_ptr<BlockPool*> pool;  // Holds nullptr: the pool is destroyed.
    base::SlotId block;                      // Empty until it has a record.
};

inline Bytes BlockPool::Block::memory() const {
    WEFT_ASSERT(storage);
    return storage->memory.bytes();
}
inline Buffer BlockPool::Block::buffer(std::size_t first_bytes) const {
    return base::BufferAccess::make(storage, memory().first(first_bytes));
}

}  // namespace weft::bulk
