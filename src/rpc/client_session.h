// A client's side of the session with one peer: its slots, the calls that wait for them, and the
// search for a server that was lost. What is done with it is client.h's.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <list>
#include <vector>

#include "core/context.h"
#include "rpc/pace.h"
#include "rpc/retry.h"
#include "rpc/session_wire.h"
#include "rpc/wait_queue.h"

namespace weft::rpc {

// One call at a time, from the request that leaves to the reply that arrives. The call itself may
// be over before: then the slot stays in use without it.
struct ClientSlot {
    static constexpr std::size_t small_bytes_max = 128;

    ClientCall* call = nullptr;  // nullptr: free, or the call was given up.
    std::uint32_t index = 0;
    std::uint32_t sequence = 0;  // Of the last call.
    bool is_busy = false;
    std::uint32_t asked = 0;  // The call that was asked for last.
    bool is_asked = false;    // After a loss, and not answered yet.
    bool is_unusual = false;  // Its call was given up, `large` is set, or:
    bool is_extra = false;    // ClientSession::take_extra();
    // what its handler put ahead of the reply can't be written here, as the call's `early` says.
    bool is_unwritten = false;

    // The request, to be sent once more if it never came: small ones, and all of idempotent calls.
    bool is_kept = false;
    std::uint8_t flags = 0;
    std::uint32_t bytes = 0;
    std::uint64_t method = 0;
    WaitingRequest::Ptr large;  // Where it does not fit below.
    std::array<std::byte, small_bytes_max> small;

    ClientSlot* next_free = nullptr;

    WireCallId wire() const { return {index, sequence}; }
    const std::byte* body() { return large ? large->body() : small.data(); }
    // True: the body is small and is to be kept.
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
    none,       // There is none; the next connection begins one.
    beginning,  // The server was told of it and has not granted it: no call has left.
    open,
    resuming,   // Connected again; the server has not said yet whether it knows us.
    searching,  // The connection is lost; its calls wait for another.
    ended,      // The server is about to end: new calls wait for another connection.
};

// A session whose calls wait for what the whole context may have under way.
struct Hungry : base::ListNode {};

struct ClientSession : base::Timer, Hungry {
    ClientSession(Client& of, core::Peer& with) : client(of), peer(with) {}

    // ---- slots -------------------------------------------------------------------------------
    // A call may leave now, and none waits.
    bool is_direct() const { return free && busy < plain_window && waiting.size() == 0; }
    // Requires: free, and busy < window_of() the call.
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
    // A free slot is there, if the grant has one.
    bool has_free() { return free || add_block(); }
    ClientSlot* find(WireCallId wire) {
        if (wire.slot >= made) return nullptr;
        ClientSlot& slot = at(wire.slot);
        return slot.is_busy && slot.sequence == wire.sequence ? &slot : nullptr;
    }
    ClientSlot& at(std::uint32_t index) { return blocks[index / block_slots][index % block_slots]; }
    template <class Visit>
    void for_each_busy(Visit&& visit) {
        for (std::uint32_t i = 0; i < made; ++i) {
            if (at(i).is_busy) visit(at(i));
        }
    }
    bool has_calls() {
        bool any = waiting.size() != 0;
        for_each_busy([&](ClientSlot& slot) { any |= slot.call != nullptr; });
        return any;
    }
    // After every change of what it depends on.
    void update_window() {
        window = state == SessionState::open ? granted_window : 0;
        plain_window = window - std::min(window / 2, nested_slots);
    }
    // This one may leave. However narrow the window has become, and however many were under way
    // before, some of the handlers' calls may.
    bool may_take(const ClientCall& call) const {
        if (busy < plain_window) return true;
        return call.traits.is_nested && window != 0 && extra < nested_slots && busy < granted;
    }
    // Beyond what others may have. Requires: just taken.
    void take_extra(ClientSlot& slot) {
        ++extra;
        slot.is_extra = slot.is_unusual = true;
    }
    // All slots as they are before a session's first call. Requires: none has a call.
    void reset();
    [[gnu::cold]] bool add_block();

    static constexpr std::uint32_t block_slots = 64;
    // Kept for handlers' calls: servers that call each other in handlers must not wait in a circle.
    static constexpr std::uint32_t nested_slots = 8;

    Client& client;
    core::Peer& peer;
    SessionState state = SessionState::none;
    bool is_granted = false;  // The server has it, or had it.
    bool was_lost = false;    // Its connection, and nothing was granted since.
    SessionId id;
    na::Incarnation incarnation;  // Of the server that it is with.

    ClientSlot* free = nullptr;
    std::uint32_t busy = 0;
    std::uint32_t extra = 0;           // Of them, by the handlers' privilege.
    std::uint32_t window = 0;          // So many may be busy; 0 unless open.
    std::uint32_t plain_window = 0;    // With calls that no handler makes.
    std::uint32_t granted_window = 0;  // As the server says.
    std::uint32_t granted = 0;         // Slots that exist at the server,
    std::uint32_t made = 0;            // and here.
    std::size_t bytes_room = 0;        // For bodies of the busy ones.
    std::array<std::unique_ptr<ClientSlot[]>, slots_max / block_slots> blocks;

    WaitQueue waiting;
    base::IntrusiveList<ClientCall, core::Deferred> resting;   // Pushed back; their timers run.
    base::IntrusiveList<ClientCall, core::Deferred> fetching;  // Large replies are on their way.
    Pace pace;
    RetryBudget budget;

    // While searching or resuming.
    TimePoint until{};      // Then it is given up,
    bool was_late = false;  // unless this process stood still: once it has that time anew.
    TimePoint ended_at{};   // The server said that it ends.
    Duration pause{};       // Before the next attempt.
    std::string last_why;   // What the last attempt came to.

    std::list<ClientSession>::iterator self;
};

}  // namespace weft::rpc
