// Outgoing messages on transports that send whole slots of memory (ofi, verbs). Frames of a turn
// are joined to the last slot of their peer while it has room. The first commit of a turn to a peer
// leaves at once, later ones with the flush.
#pragma once

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/assert.h"
#include "base/intrusive_list.h"
#include "na/provider.h"

namespace weft::na {

// The slots of an endpoint, allocated once. `Slot` is a ListNode with reset() and `message`.
template <class Slot>
class SlotPool {
  public:
    SlotPool() = default;
    // `memory_at(i)`: the memory of slot i.
    template <class MemoryAt>
    SlotPool(std::uint32_t count, MemoryAt&& memory_at) : all_(count) {
        free_.reserve(count);
        for (std::uint32_t i = count; i-- > 0;) {
            all_[i].message = memory_at(i);
            free_.push_back(&all_[i]);
        }
    }

    // nullptr: `keep` or fewer are left. The slot given back last is taken first: it is warm.
    Slot* take(std::size_t keep) {
        if (free_.size() <= keep) return nullptr;
        Slot* slot = free_.back();
        free_.pop_back();
        slot->reset();
        return slot;
    }
    void give_back(Slot& slot) {
        WEFT_DCHECK(!slot.is_linked() && free_.size() < all_.size());
        free_.push_back(&slot);
    }
    std::size_t remaining() const { return free_.size(); }
    std::size_t size() const { return all_.size(); }

  private:
    std::vector<Slot> all_;
    std::vector<Slot*> free_;
};

struct FlushNode : base::ListNode {};
struct WritableNode : base::ListNode {};

// A peer's part. Linked: FlushNode while frames wait for the end of the turn, WritableNode while
// reserve() owes a `writable`.
template <class Slot>
struct PeerBacklog : FlushNode, WritableNode {
    base::IntrusiveList<Slot> backlog;  // Not yet with the transport.
    std::uint32_t slots = 0;            // In the backlog and with the transport.
    std::uint64_t turn = 0;             // Of the last commit that left at once.
};

// `Slot` also has `used` and `frames()`. `Peer` derives from PeerBacklog<Slot> and has `id` and
// `info`, of which message_bytes_max bounds a slot.
template <class Peer, class Slot>
class SendBacklog {
  public:
    // Claims room for `bytes`: behind the frames in `last`, unless that exceeds `joined_max`, else
    // in the slot that `take()` returns. nullptr: it returned none.
    template <class Take>
    std::byte* claim(Peer& peer, Slot* last, std::size_t bytes, std::size_t joined_max,
                     Take&& take) noexcept {
        WEFT_DCHECK(!slot_ && bytes <= peer.info.message_bytes_max);
        offset_ = last ? aligned(last->used) : 0;
        is_fresh_ = !last || offset_ + bytes > joined_max;
        if (is_fresh_) {
            offset_ = 0;
            last = take();
        }
        if (!last) {
            wait_writable(peer);
            return nullptr;
        }
        slot_ = last;
        peer_ = peer.id;
        return slot_->frames() + offset_;
    }

    bool has_claim() const { return slot_ != nullptr; }
    PeerId claimer() const { return peer_; }

    struct Commit {
        bool leaves_now = false;
        std::uint32_t bytes = 0;  // By which the slot has grown. 0: the claim was abandoned.
    };
    // Ends the claim. `peer`: that of claimer(), if it is still up. `give_back(slot)` frees a slot.
    template <class GiveBack>
    Commit commit(Peer* peer, std::size_t bytes, bool at_once, GiveBack&& give_back) noexcept {
        WEFT_DCHECK(slot_);
        Slot& slot = *std::exchange(slot_, nullptr);
        if (!peer || bytes == 0) {
            if (is_fresh_) give_back(slot);
            return {};
        }
        const std::uint32_t before = slot.used;
        WEFT_DCHECK(before <= offset_ && offset_ + bytes <= peer->info.message_bytes_max);
        std::memset(slot.frames() + before, 0, offset_ - before);
        slot.used = offset_ + static_cast<std::uint32_t>(bytes);
        Commit done{false, slot.used - before};
        if (is_fresh_) {
            done.leaves_now = at_once && peer->turn != turn_ && peer->backlog.empty();
            ++peer->slots;
            peer->backlog.push_back(slot);
        }
        if (done.leaves_now) {
            peer->turn = turn_;
        } else {
            flush_later(*peer);
        }
        return done;
    }

    void flush_later(Peer& peer) {
        if (!peer.FlushNode::is_linked()) unflushed_.push_back(peer);
    }
    bool has_unflushed() const { return !unflushed_.empty(); }
    template <class Drain>
    void flush(Drain&& drain) {
        while (Peer* peer = unflushed_.pop_front()) drain(*peer);
    }
    void end_turn() { ++turn_; }

    void wait_writable(Peer& peer) {
        if (!peer.WritableNode::is_linked()) waiting_.push_back(peer);
    }
    // Calls `wake(peer)` for each waiting peer that `has_room(peer)`.
    template <class HasRoom, class Wake>
    void wake_writers(HasRoom&& has_room, Wake&& wake) {
        waiting_.for_each([&](Peer& peer) {
            if (!has_room(peer)) return;
            peer.WritableNode::unlink();
            wake(peer);
        });
    }
    template <class HasRoom>
    bool can_wake(HasRoom&& has_room) {
        bool any = false;
        waiting_.for_each([&](Peer& peer) { any |= has_room(peer); });
        return any;
    }

    void remove(Peer& peer) {
        if (peer.FlushNode::is_linked()) peer.FlushNode::unlink();
        if (peer.WritableNode::is_linked()) peer.WritableNode::unlink();
    }
    void clear() {
        while (unflushed_.pop_front()) continue;
        while (waiting_.pop_front()) continue;
    }

  private:
    static constexpr std::uint32_t frame_alignment = 8;
    static std::uint32_t aligned(std::uint32_t bytes) {
        return (bytes + frame_alignment - 1) / frame_alignment * frame_alignment;
    }

    base::IntrusiveList<Peer, FlushNode> unflushed_;
    base::IntrusiveList<Peer, WritableNode> waiting_;
    std::uint64_t turn_ = 1;
    // The claim.
    Slot* slot_ = nullptr;
    PeerId peer_;
    std::uint32_t offset_ = 0;
    bool is_fresh_ = false;  // Not in a backlog yet.
};

}  // namespace weft::na
