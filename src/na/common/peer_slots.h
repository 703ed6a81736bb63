// The peers of an endpoint, each in a slot with a generation: the id of a peer that is gone finds
// nothing, though its slot is in use again.
#pragma once

#include <cstdint>
#include <memory>
#include <new>
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
    // The indices that no new peer can have: those of released peers, too.
    std::uint32_t taken() const { return count_ - static_cast<std::uint32_t>(free_.size()); }

    // Takes the slot that was given back last, since it is warm, or a new one. Throws
    // std::bad_alloc; then nothing has changed.
    T& add(std::unique_ptr<T> value) {
        grow();
        const std::uint32_t index = free_.back();
        free_.pop_back();
        Slot& slot = slots_[index];
        WEFT_ASSERT(!slot.value && !slot.is_released && value);
        slot.value = std::move(value);
        ++size_;
        slot.value->id = {index, slot.generation};
        return *slot.value;
    }
    // The next add() does not throw. False: no memory.
    bool prepare_add() noexcept {
        try {
            grow();
            return true;
        } catch (const std::bad_alloc&) {
            return false;
        }
    }
    // A new peer; nullptr: no memory.
    T* try_add() noexcept {
        try {
            return &add(std::make_unique<T>());
        } catch (const std::bad_alloc&) {
            return nullptr;
        }
    }
    // For a peer that the caller of the endpoint closes, or never knew. From here on no id finds
    // the peer, and another one may take its slot.
    std::unique_ptr<T> remove(PeerId peer) {
        std::unique_ptr<T> removed = release(peer);
        recycle(peer.index);
        return removed;
    }

    // remove() in two steps, for a transport that releases a peer before its peer_down is handed
    // out: until recycle() no other peer has the index.
    std::unique_ptr<T> release(PeerId peer) {
        WEFT_ASSERT(find(peer));
        Slot& slot = slots_[peer.index];
        if (++slot.generation == 0) slot.generation = 1;
        slot.is_released = true;
        --size_;
        return std::move(slot.value);
    }
    void recycle(std::uint32_t index) {
        WEFT_ASSERT(index < count_ && slots_[index].is_released);
        slots_[index].is_released = false;
        free_.push_back(index);
    }

    // The peer_down of a poll's batch: no other peer has the index before begin_poll(), as the
    // caller may connect before it has read the whole batch. A peer_down has a reason: it ends its
    // batch.
    std::unique_ptr<T> remove_reported(PeerId peer) {
        std::unique_ptr<T> removed = release(peer);
        set_reported(peer.index);
        return removed;
    }
    // The same for a peer that was released before.
    void note_reported(std::span<const Event> batch) {
        if (batch.empty() || batch.back().kind != EventKind::peer_down) return;
        set_reported(batch.back().peer.index);
    }
    // Before each poll that can report a peer_down.
    void begin_poll() {
        if (reported_ != none) recycle(std::exchange(reported_, none));
    }

    // Calls `visit(peer)` for each peer in the order of the slots; it may remove the peer.
    template <class Visit>
    void for_each(Visit&& visit) const {
        for (std::uint32_t index = 0; index < count_; ++index) {
            if (T* value = slots_[index].value.get()) visit(*value);
        }
    }

  private:
    static constexpr std::uint32_t none = ~std::uint32_t{0};

    struct Slot {
        std::unique_ptr<T> value;
        std::uint32_t generation = 1;
        bool is_released = false;
    };

    // There is a free index afterwards.
    void grow() {
        if (!free_.empty()) return;
        slots_.resize(count_ + 1);
        free_.reserve(slots_.capacity());  // recycle() never allocates.
        free_.push_back(count_++);
    }
    void set_reported(std::uint32_t index) {
        WEFT_ASSERT(reported_ == none && slots_[index].is_released);
        reported_ = index;
    }

    std::vector<Slot> slots_;
    std::uint32_t count_ = 0;  // slots_.size(), in one instruction.
    std::uint32_t size_ = 0;
    std::vector<std::uint32_t> free_;
    std::uint32_t reported_ = none;
};

}  // namespace weft::na
