// The client's record of one call, from submit() to its completion.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include <weft/channel.h>

#include "base/assert.h"
#include "base/slot_table.h"
#include "base/state.h"
#include "base/timer_wheel.h"
#include "core/deferred.h"
#include "rpc/header.h"

namespace weft {

// Of a call at its client. Each call starts it anew.
constexpr bool can_move(Stage from, Stage to) {
    switch (to) {
        case Stage::none: return false;
        case Stage::queued: return from == Stage::queued || from == Stage::sent;
        case Stage::resolving:
        case Stage::sent: return from == Stage::queued;
        case Stage::executing: return from == Stage::sent;
    }
    return false;
}

}  // namespace weft

namespace weft::rpc {

struct ClientCall;
struct ClientSession;

// Receives the timers of calls and sessions, and the deferred completions.
class CallOwner {
  public:
    virtual void on_deadline(ClientCall& call) = 0;
    virtual void on_due(ClientCall& call) = 0;
    virtual void on_session_timer(ClientSession& session, TimePoint now) = 0;

  protected:
    ~CallOwner() = default;
};

// A waiting request and its body, in one block.
struct WaitingRequest {
    std::uint64_t method = 0;
    std::uint32_t bytes = 0;  // Of the body, which follows, or of its bulk::RendezvousBody.
    std::uint8_t flags = 0;   // Of the request's frame.
    TimePoint at{};  // The deadline of a call that backs off; otherwise when it was queued.

    std::byte* body() { return reinterpret_cast<std::byte*>(this + 1); }
    // Restores the state after make(), in the same memory.
    void reset(std::uint64_t for_method, std::uint8_t with_flags) {
        *this = {for_method, bytes, with_flags};
    }
    // The bytes that it counts for in a queue.
    std::size_t size() const { return sizeof(RequestHeader) + bytes; }

    struct Free {
        void operator()(WaitingRequest* request) const { ::operator delete(request); }
    };
    using Ptr = std::unique_ptr<WaitingRequest, Free>;
    // nullptr: no memory.
    static Ptr make(std::uint64_t method, std::uint8_t flags, std::size_t bytes) {
        WEFT_DCHECK(bytes <= UINT32_MAX);
        void* memory = ::operator new(sizeof(WaitingRequest) + bytes, std::nothrow);
        if (!memory) return nullptr;
        return Ptr(::new (memory) WaitingRequest{method, static_cast<std::uint32_t>(bytes), flags});
    }
};

// How a call is to be treated, and its history. One word, because the hot path copies it.
struct alignas(4) CallTraits {
    std::uint8_t flags = 0;     // Of its frame: idempotent_flag, inline_bulk_flag.
    std::uint8_t priority = 0;  // Values above the maximum count as the maximum.
    std::uint8_t attempts = 0;  // Attempts that the server pushed back.
    // Made by a handler: the client of that handler's call retries instead.
    bool is_nested : 1 = false;
    // An earlier attempt was sent and may have run; a later refusal does not exclude that.
    bool may_have_run : 1 = false;
    std::uint8_t server_restarts : 3 = 0;  // Restarts of servers that had received the call.

    bool is_idempotent() const { return (flags & idempotent_flag) != 0; }
};

struct ClientSlot;

// Deferred: linked in the session's queue while it waits, in one of the session's lists while it
// backs off or its large reply is being fetched, in the context's list while its completion is
// pending. A waiting call costs a table entry and its request: 256 bytes with a body of 16.
struct ClientCall : base::Timer, core::Deferred {
    ClientCall() {
        fire = [](base::Timer& timer, TimePoint) {
            auto& call = static_cast<ClientCall&>(timer);
            call.owner->on_deadline(call);
        };
        run = [](core::Deferred& work) {
            auto& call = static_cast<ClientCall&>(work);
            call.owner->on_due(call);
        };
    }

    CallOwner* owner = nullptr;
    ClientSession* session = nullptr;  // nullptr once it has ended and its completion is pending.
    ClientSlot* slot = nullptr;        // While it is sent and not answered.
    WaitingRequest::Ptr waiting;       // While it is queued.
    Completion done;
    Status deferred_status;  // The status of a deferred completion.
    base::State<Stage> stage{Stage::none};
    bool completion_pending = false;  // The completion runs in the next turn.
    bool is_backing_off = false;      // Pushed back; the timer is that of the next attempt.
    CallTraits traits;
};

using CallId = base::SlotId;
using CallEntry = base::SlotTable<ClientCall>::Entry;
static_assert(sizeof(CallEntry) <= 200);
inline CallEntry& entry_of(ClientCall& call) { return base::SlotTable<ClientCall>::entry_of(call); }

}  // namespace weft::rpc
