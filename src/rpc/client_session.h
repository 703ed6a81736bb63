// The client's side of the session with one peer: its slots, the calls that wait for slots, and the
// state of a reconnect. The operations on it are in client.h.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <vector>

#include "core/context.h"
#include "rpc/retry.h"
#include "rpc/session_wire.h"
#include "rpc/wait_estimator.h"
#include "rpc/wait_queue.h"

namespace weft::rpc {

// One call at a time, from the departure of its request to the arrival of its reply. The call may
// end earlier: then the slot stays in use without a call.
struct ClientSlot {
    static constexpr std::size_t small_bytes_max = 128;

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

    // The request, for a resend if the server did not receive it. Kept if it is small or
    // idempotent.
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
    void keep(const std::byte* body) { std::memcpy(small.data(), body, bytes); }
};

enum class SessionState : std::uint8_t {
    none,       // No session; the next connection begins one.
    beginning,  // Announced to the server and not granted yet: no call has been sent.
    open,
    resuming,      // Reconnected; the server has not confirmed yet that it still has the session.
    reconnecting,  // The connection is lost; the calls wait for a new one.
    ended,         // The server is shutting down: new calls wait for another connection.
};

// A session that waits for credits of the whole context.
struct CreditWaiter : base::ListNode {};

struct ClientSession : core::ClientState, base::Timer, CreditWaiter {
    ClientSession(Client& of, core::Peer& with) : client(of), peer(with) {}

    // ---- slots -------------------------------------------------------------------------------
    // A call may be sent now, and none waits.
    bool is_direct() const { return free && busy < plain_window && waiting.size() == 0; }
    // Requires: `free`, and busy < window for this call.
    ClientSlot& take() {
        ClientSlot& slot = *free;
        free = slot.next_free;
        ++busy;
        ++slot.sequence;
        slot.is_busy = true;
        return slot;
    }
    void release(ClientSlot& slot) {
        slot.is_busy = false;
        slot.call = nullptr;
        slot.next_free = free;
        free = &slot;
        --busy;
    }
    // True: a slot is free, possibly in a block allocated here within the grant.
    bool has_free() { return free || add_block(); }
    ClientSlot* find(WireCallId wire) {
        if (wire.slot >= allocated) return nullptr;
        ClientSlot& slot = at(wire.slot);
        return slot.is_busy && slot.sequence == wire.sequence ? &slot : nullptr;
    }
    ClientSlot& at(std::uint32_t index) { return blocks[index / block_slots][index % block_slots]; }
    template <class Visit>
    void for_each_busy(Visit&& visit) {
        for (std::uint32_t i = 0; i < allocated; ++i) {
            if (at(i).is_busy) visit(at(i));
        }
    }
    bool has_calls() {
        bool any = waiting.size() != 0;
        for_each_busy([&](ClientSlot& slot) { any |= slot.call != nullptr; });
        return any;
    }
    // Call after every change of `state` or `granted_window`.
    void update_window() {
        window = state == SessionState::open ? granted_window : 0;
        plain_window = window - std::min(window / 2, nested_slots);
    }
    // Whether the call may be sent. However narrow the window has become, and however many calls
    // are in flight, some calls made by handlers may still be sent.
    bool may_take(const ClientCall& call) const {
        if (busy < plain_window) return true;
        return call.traits.is_nested && window != 0 && extra < nested_slots && busy < granted;
    }
    // Counts a slot as taken beyond `plain_window`. Requires: just taken.
    void take_extra(ClientSlot& slot) {
        ++extra;
        slot.is_extra = slot.is_unusual = true;
    }
    // Resets all slots to their state before a session's first call. Requires: none has a call.
    void reset();
    [[gnu::cold]] bool add_block();

    static constexpr std::uint32_t block_slots = 64;
    // Reserved for calls made by handlers: servers that call each other in handlers must not
    // deadlock.
    static constexpr std::uint32_t nested_slots = 8;

    Client& client;
    core::Peer& peer;
    SessionState state = SessionState::none;
    bool is_granted = false;  // The server has granted it at some time.
    bool was_lost = false;    // The connection was lost, and no grant has arrived since.
    SessionId id;
    na::Incarnation incarnation;  // Of the server that has the session.

    ClientSlot* free = nullptr;
    std::uint32_t busy = 0;
    std::uint32_t extra = 0;           // Of them, those of take_extra().
    std::uint32_t window = 0;          // At most so many may be busy; 0 unless open.
    std::uint32_t plain_window = 0;    // For calls that no handler makes.
    std::uint32_t granted_window = 0;  // Of the last grant.
    std::uint32_t granted = 0;         // Slots that exist at the server.
    std::uint32_t allocated = 0;       // Slots that exist in this process.
    std::size_t byte_credits = 0;      // For bodies of calls in busy slots.
    std::array<std::unique_ptr<ClientSlot[]>, slots_max / block_slots> blocks;

    WaitQueue waiting;
    base::IntrusiveList<ClientCall, core::Deferred> backing_off;  // Pushed back.
    base::IntrusiveList<ClientCall, core::Deferred> fetching;  // Large replies are being fetched.
    WaitEstimator wait_estimator;
    RetryBudget budget;

    // While reconnecting or resuming.
    TimePoint reconnect_deadline{};  // The calls fail then,
    bool was_extended = false;       // or, once, reconnect_max later after a suspension.
    TimePoint ended_at{};            // When the server announced its end.
    Duration backoff{};              // Before the next attempt.
    std::string last_error;          // The error of the last attempt.

    std::list<ClientSession>::iterator self;
};

inline ClientSession* client_session(const core::Peer& peer) {
    return static_cast<ClientSession*>(peer.client);
}

}  // namespace weft::rpc
