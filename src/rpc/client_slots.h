// The slots of a client's session with one peer, each for one call at a time.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/assert.h"
#include "rpc/client_call.h"
#include "rpc/session_wire.h"

namespace weft::rpc {

// One call at a time, from the departure of its request to the arrival of its reply. The call may
// end earlier: then the slot stays in use without a call.
struct ClientSlot {
    static constexpr std::size_t small_bytes_max = 128;

    // ---- the call
    ClientCall* call = nullptr;  // nullptr: free, or the call ended early.
    std::uint32_t index = 0;
    std::uint32_t sequence = 0;  // Of the last call.
    bool is_busy = false;
    std::uint32_t queried_sequence = 0;  // The call of the last query.
    bool is_queried = false;             // A query after a lost connection is pending.
    bool is_unusual = false;  // Its call ended early, or one of the next two, or `large`.
    bool is_extra = false;    // See ClientSession::take_extra().
    // The handler's inline put can't be written here; the status is in the call's
    // `deferred_status`.
    bool inline_put_failed = false;

    // ---- the request, for a resend if the server did not receive it
    // It is small or idempotent.
    bool is_kept = false;
    std::uint8_t flags = 0;
    std::uint32_t bytes = 0;
    std::uint64_t method = 0;
    WaitingRequest::Ptr large;  // If it does not fit into `small`.
    std::array<std::byte, small_bytes_max> small;

    ClientSlot* next_free = nullptr;

    WireCallId wire() const { return {index, sequence}; }
    const std::byte* body() { return large ? large->body() : small.data(); }
    // True: the body is small; the caller keeps it by keep().
    bool describe(std::uint64_t of, std::uint8_t with, std::size_t size) {
        method = of;
        flags = with;
        bytes = static_cast<std::uint32_t>(size);
        is_kept = size <= small_bytes_max;
        return is_kept;
    }
    // Requires: describe() returned true.
    void keep(const std::byte* body) {
        WEFT_DCHECK(is_kept && bytes <= small_bytes_max);
        std::memcpy(small.data(), body, bytes);
    }
};

struct ClientSlots {
    static constexpr std::uint32_t block_slots = 64;
    // Reserved for calls made by handlers: servers that call each other in handlers must not
    // deadlock.
    static constexpr std::uint32_t nested_slots = 8;

    bool has_plain_room() const { return busy < plain_window; }
    bool has_plain_slot() const { return free && has_plain_room(); }
    bool has_nested_room() const { return window != 0 && extra < nested_slots && busy < granted; }
    // True: a slot is free, possibly in a block allocated here within the grant.
    bool has_free() { return free || add_block(); }
    // Requires: `free`, and busy < window for this call.
    ClientSlot& take() {
        WEFT_DCHECK(free && !free->is_busy && !free->call);
        WEFT_DCHECK(window != 0 && busy < granted);
        ClientSlot& slot = *free;
        free = slot.next_free;
        ++busy;
        ++slot.sequence;
        slot.is_busy = true;
        return slot;
    }
    // Counts a slot as taken beyond `plain_window`. Requires: just taken.
    void take_extra(ClientSlot& slot) {
        WEFT_DCHECK(slot.is_busy && !slot.call && !slot.is_extra);
        WEFT_DCHECK(extra < nested_slots);
        ++extra;
        slot.is_extra = slot.is_unusual = true;
    }
    void release(ClientSlot& slot) {
        WEFT_DCHECK(slot.is_busy && busy != 0);
        WEFT_DCHECK(!slot.is_unusual && !slot.is_extra && !slot.large);
        slot.is_busy = false;
        slot.call = nullptr;
        slot.next_free = free;
        free = &slot;
        --busy;
    }
    ClientSlot* find(WireCallId wire) {
        if (wire.slot >= allocated) return nullptr;
        ClientSlot& slot = at(wire.slot);
        return slot.is_busy && slot.sequence == wire.sequence ? &slot : nullptr;
    }
    ClientSlot& at(std::uint32_t index) {
        WEFT_DCHECK(index < allocated);
        return blocks[index / block_slots][index % block_slots];
    }
    template <class Visit>
    void for_each_busy(Visit&& visit) {
        for (std::uint32_t i = 0; i < allocated; ++i) {
            if (at(i).is_busy) visit(at(i));
        }
    }
    void set_window(std::uint32_t most) {
        window = most;
        plain_window = window - std::min(window / 2, nested_slots);
    }
    void reset_slots();
    [[gnu::cold]] bool add_block();

    ClientSlot* free = nullptr;
    std::uint32_t busy = 0;
    std::uint32_t extra = 0;           // Of them, those of take_extra().
    std::uint32_t window = 0;          // At most so many may be busy; 0 unless open.
    std::uint32_t plain_window = 0;    // For calls that no handler makes.
    std::uint32_t granted_window = 0;  // Of the last grant.
    std::uint32_t granted = 0;         // Slots that exist at the server.
    std::uint32_t allocated = 0;       // Slots that exist in this process.
    std::array<std::unique_ptr<ClientSlot[]>, slots_max / block_slots> blocks;
};

}  // namespace weft::rpc
