// The client's side of the session with one peer: its slots, the calls that wait for slots, and the
// state of a reconnect. The operations on it are in client.h.
#pragma once

#include <list>

#include "base/assert.h"
#include "core/context.h"
#include "rpc/backoff.h"
#include "rpc/client_slots.h"
#include "rpc/session_wire.h"
#include "rpc/wait_estimator.h"
#include "rpc/wait_queue.h"

namespace weft::rpc {

enum class SessionState : std::uint8_t {
    none,       // No session; the next connection begins one.
    beginning,  // Announced to the server and not granted yet: no call has been sent.
    open,
    resuming,      // Reconnected; the server has not confirmed yet that it still has the session.
    reconnecting,  // The connection is lost; the calls wait for a new one.
    ended,         // The server is shutting down: new calls wait for another connection.
};
constexpr bool can_move(SessionState from, SessionState to) {
    using enum SessionState;
    switch (to) {
        case none: return from != none;
        case beginning: return from == none;
        case open: return from == none || from == beginning || from == resuming;
        case resuming: return from == reconnecting;
        case reconnecting: return from != none && from != reconnecting;
        case ended: return from == open;
    }
    return false;
}

// A session that waits for credits of the whole context.
struct CreditWaiter : base::ListNode {};

struct ClientSession : core::ClientState, base::Timer, CreditWaiter, ClientSlots {
    ClientSession(CallOwner& of, core::Peer& with) : owner(of), peer(with) {
        fire = [](base::Timer& timer, TimePoint now) {
            auto& session = static_cast<ClientSession&>(timer);
            session.owner.on_session_timer(session, now);
        };
    }

    // A call may be sent now, and none waits.
    bool is_direct() const { return has_plain_slot() && waiting.size() == 0; }
    bool has_calls() {
        bool any = waiting.size() != 0;
        for_each_busy([&](ClientSlot& slot) { any |= slot.call != nullptr; });
        return any;
    }
    // Whether the call may be sent. However narrow the window has become, and however many calls
    // are in flight, some calls made by handlers may still be sent.
    bool may_take(const ClientCall& call) const {
        return has_plain_room() || (call.traits.is_nested && has_nested_room());
    }
    void move_to(SessionState next) {
        state.move_to(next);
        update_window();
    }
    // Call after every change of `granted_window`.
    void update_window() {
        WEFT_DCHECK(granted_window <= granted);
        set_window(state == SessionState::open ? granted_window : 0);
    }
    // To the state before the first call. Requires: no slot has a call.
    void reset() {
        reset_slots();
        peer.remote.wanted = peer.remote.chosen;
        if (state != SessionState::none) move_to(SessionState::none);
    }

    // ---- constant
    CallOwner& owner;
    core::Peer& peer;
    std::list<ClientSession>::iterator self;

    // ---- the session at the server
    base::State<SessionState> state{SessionState::none};
    bool is_granted = false;  // The server has granted it at some time.
    bool was_lost = false;    // The connection was lost, and no grant has arrived since.
    SessionId id;
    na::Incarnation incarnation;  // Of the server that has the session.

    // ---- calls that wait
    std::size_t byte_credits = 0;  // For bodies of calls in busy slots.
    WaitQueue waiting;
    base::IntrusiveList<ClientCall, core::Deferred> backing_off;  // Pushed back.
    base::IntrusiveList<ClientCall, core::Deferred> fetching;  // Large replies are being fetched.
    WaitEstimator wait_estimator;
    RetryBudget budget;

    // ---- while reconnecting or resuming
    TimePoint reconnect_deadline{};  // The calls fail then,
    bool was_extended = false;       // or, once, reconnect_max later after a suspension.
    TimePoint ended_at{};            // When the server announced its end.
    Duration backoff{};              // Before the next attempt.
    std::string last_error;          // The error of the last attempt.
};

inline ClientSession* client_session(const core::Peer& peer) {
    return static_cast<ClientSession*>(peer.client);
}

}  // namespace weft::rpc
