// The peers of an endpoint, each in a slot with a generation: the id of a peer that is gone finds
// nothing, though its slot is in use again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "na/common/peer_phase.h"
#include "na/provider.h"

namespace weft::na {

// `T` has a member `PeerId id`, which add() sets.
template <class T>
class PeerSlots {
  public:
    // nullptr for a stale or made-up id.
    T* find(PeerId peer) const {
        if (peer.index >= count_) return nullptr;
        const Slot& slot = slots_[peer.index];
        return slot.generation == peer.generation ? slot.value.get() : nullptr;
    }
    // As find(); nullptr also for a peer that is not up.
    T* find_up(PeerId peer) const {
        T* found = find(peer);
        return found && found->phase == PeerPhase::up ? found : nullptr;
    }
    // The peer that has the slot now; nullptr: none.
    T* at(std::uint32_t index) const {
        return index < count_ ? slots_[index].value.get() : nullptr;
    }
    std::uint32_t size() const { return size_; }

    // Takes the slot that was given back last, since it is warm, or a new one.
    T& add(std::unique_ptr<T> value) {
        if (free_.empty()) {
            free_.push_back(count_++);
            slots_.emplace_back();
            free_.reserve(slots_.size());  // remove() never allocates.
        }
        const std::uint32_t index = free_.back();
        free_.pop_back();
        Slot& slot = slots_[index];
        WEFT_ASSERT(!slot.value && !slot.is_retired && value);
        slot.value = std::move(value);
        ++size_;
        slot.value->id = {index, slot.generation};
        return *slot.value;
    }
    // From here on no id finds the peer, and another one may take its slot.
    std::unique_ptr<T> remove(PeerId peer) {
        std::unique_ptr<T> removed = retire(peer);
        recycle(peer.index);
        return removed;
    }

    // remove() in two steps, for a transport that releases a peer before its peer_down is handed
    // out: until recycle() no other peer has the index.
    std::unique_ptr<T> retire(PeerId peer) {
        WEFT_ASSERT(find(peer));
        Slot& slot = slots_[peer.index];
        if (++slot.generation == 0) slot.generation = 1;
        slot.is_retired = true;
        --size_;
        return std::move(slot.value);
    }
    void recycle(std::uint32_t index) {
        WEFT_ASSERT(index < count_ && slots_[index].is_retired);
        slots_[index].is_retired = false;
        free_.push_back(index);
    }
    // Recycles the retired peer of the peer_down in a batch of events. A peer_down has a reason: it
    // ends its batch.
    void recycle_reported(std::span<const Event> batch) {
        if (batch.empty() || batch.back().kind != EventKind::peer_down) return;
        recycle(batch.back().peer.index);
    }

    // Calls `visit(peer)` for each peer in the order of the slots; it may remove the peer.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::uint32_t index = 0; index < count_; ++index) {
            if (T* value = slots_[index].value.get()) visit(*value);
        }
    }

  private:
    struct Slot {
        std::unique_ptr<T> value;
        std::uint32_t generation = 1;
        bool is_retired = false;
    };

    std::vector<Slot> slots_;
    std::uint32_t count_ = 0;  // slots_.size(), in one instruction.
    std::uint32_t size_ = 0;
    std::vector<std::uint32_t> free_;
};

}  // namespace weft::na
