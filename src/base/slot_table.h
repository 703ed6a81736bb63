// Table of entries addressed by (slot, generation), so that a late or forged id is recognised.
//
// Grows in blocks on demand and never shrinks or moves an entry; a free slot is reused last-in
// first-out while it is warm in the cache. A slot's generation rises when it is taken and when it
// is given back, odd while taken, so an id matches only the use that it was issued for (up to 2^31
// reuses).
#pragma once

#include <cstdint>
#include <memory>
#include <new>
#include <vector>

#include "base/assert.h"

namespace weft::base {

struct SlotId {
    std::uint32_t slot = 0;
    std::uint32_t generation = 0;  // 0 is never handed out: a zero id is "none".
    friend bool operator==(const SlotId&, const SlotId&) = default;
    explicit operator bool() const { return generation != 0; }
};

// `T` is default constructible once per slot and reused; the taker of a slot resets the members
// that it needs.
template <class T>
class SlotTable {
  public:
    // `tag`: bits of each id's slot, above those of slots_max, so that two tables can have
    // different ids.
    explicit SlotTable(std::uint32_t slots_max = 1u << 22, std::uint32_t tag = 0)
        : slots_max_(slots_max), tag_(tag) {}

    struct Entry {
        T value;
        std::uint32_t slot = 0;
        std::uint32_t generation = 0;
        Entry* next_free = nullptr;

        bool is_taken() const { return generation % 2 != 0; }
        SlotId id() const { return {slot, generation}; }
    };

    // nullptr: the table is at its limit. Cost: allocates one block per `block_entries` first uses.
    Entry* take() {
        if (!free_ && !grow()) [[unlikely]]
            return nullptr;
        Entry* entry = free_;
        WEFT_DCHECK(!entry->is_taken());
        free_ = entry->next_free;
        ++entry->generation;
        ++taken_;
        return entry;
    }

    // nullptr when the id is stale, forged or was never issued. Cost: two loads.
    Entry* find(SlotId id) {
        const std::uint32_t slot = id.slot ^ tag_;
        if (slot >= slots_) return nullptr;
        Entry& entry = at(slot);
        return entry.generation == id.generation && id.generation % 2 != 0 ? &entry : nullptr;
    }

    // The entry that has the slot now; nullptr: the slot is free. Cost: two loads.
    Entry* find_at(std::uint32_t slot) {
        return slot < slots_ && at(slot).is_taken() ? &at(slot) : nullptr;
    }

    // The entry around a value of this table: `value` is its first member.
    static Entry& entry_of(T& value) { return reinterpret_cast<Entry&>(value); }

    void release(Entry& entry) {
        retire(entry);
        recycle(entry);
    }

    // release() in two steps, for a value that is used a last time in between: from retire() on
    // no id finds the entry, and only recycle() lets it be taken again.
    void retire(Entry& entry) {
        WEFT_DCHECK(entry.is_taken() && taken_ != 0);
        ++entry.generation;
        --taken_;
    }
    void recycle(Entry& entry) {
        WEFT_DCHECK(!entry.is_taken());
        entry.next_free = free_;
        free_ = &entry;
    }
    void recycle(std::uint32_t slot) { recycle(at(slot)); }

    std::uint32_t taken() const { return taken_; }

    // `visit(Entry&)` for each taken entry; it may give the entry back.
    template <class Visit>
    void for_each(Visit&& visit) {
        for (std::uint32_t slot = 0; slot < slots_; ++slot) {
            Entry& entry = at(slot);
            if (entry.is_taken()) visit(entry);
        }
    }

  private:
    static constexpr std::uint32_t block_entries = 64;

    Entry& at(std::uint32_t slot) {
        WEFT_DCHECK(slot < slots_);
        return blocks_[slot / block_entries][slot % block_entries];
    }

    [[gnu::noinline, gnu::cold]] bool grow() {
        if (slots_ + block_entries > slots_max_) return false;
        std::unique_ptr<Entry[]> block(new (std::nothrow) Entry[block_entries]);
        if (!block) return false;
        for (std::uint32_t i = block_entries; i-- > 0;) {
            block[i].slot = (slots_ + i) | tag_;
            block[i].next_free = free_;
            free_ = &block[i];
        }
        blocks_.push_back(std::move(block));
        slots_ += block_entries;
        return true;
    }

    std::vector<std::unique_ptr<Entry[]>> blocks_;
    std::uint32_t slots_ = 0;
    const std::uint32_t slots_max_;
    const std::uint32_t tag_;
    Entry* free_ = nullptr;
    std::uint32_t taken_ = 0;
};

}  // namespace weft::base
