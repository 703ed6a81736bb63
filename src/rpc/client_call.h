// One call as its client keeps it, from submit() to its completion.
#pragma once

#include <cstdint>
#include <memory>
#include <new>

#include <weft/channel.h>

#include "base/slot_table.h"
#include "base/timer_wheel.h"
#include "core/deferred.h"
#include "rpc/header.h"

namespace weft::rpc {

class Client;
struct ClientSession;

// A request that waits, in one block with its body.
struct WaitingRequest {
    std::uint64_t method = 0;
    std::uint32_t bytes = 0;  // Of the body, which follows; of a lent one's bulk::LentBody.
    std::uint8_t flags = 0;   // Of the request's frame.
    TimePoint at{};           // Of a call that rests, its deadline; else when it was queued.

    std::byte* body() { return reinterpret_cast<std::byte*>(this + 1); }
    // As make() leaves it, in the same memory.
    void reset(std::uint64_t for_method, std::uint8_t with_flags) {
        *this = {for_method, bytes, with_flags};
    }
    // What it counts for in a queue.
    std::size_t size() const { return sizeof(RequestHeader) + bytes; }

    struct Free {
        void operator()(WaitingRequest* request) const { ::operator delete(request); }
    };
    using Ptr = std::unique_ptr<WaitingRequest, Free>;
    // nullptr: no memory.
    static Ptr make(std::uint64_t method, std::uint8_t flags, std::size_t bytes) {
        void* memory = ::operator new(sizeof(WaitingRequest) + bytes, std::nothrow);
        if (!memory) return nullptr;
        return Ptr(::new (memory) WaitingRequest{method, static_cast<std::uint32_t>(bytes), flags});
    }
};

// How a call is to be treated, and how it went. One word, for the sake of the hot path.
struct alignas(4) CallTraits {
    std::uint8_t flags = 0;     // Of its frame: idempotent_flag, riding_flag.
    std::uint8_t priority = 0;  // Those over the highest are the highest.
    std::uint8_t attempts = 0;  // That the server pushed back.
    // Made by a handler: its own client is the one who tries again.
    bool is_nested : 1 = false;
    // It was sent before, and may have run: whoever refuses it now does not know.
    bool may_run : 1 = false;
    std::uint8_t lives : 3 = 0;  // Of servers, that ended while they had it.

    bool is_idempotent() const { return (flags & idempotent_flag) != 0; }
};

struct ClientSlot;

// Deferred: in the session's queue while it waits, in one of its lists while it rests or its large
// reply is on its way, in the context's while its end is under way.
// A waiting call costs an entry of the table and its request: 256 bytes, with a body of 16.
struct ClientCall : base::Timer, core::Deferred {
    ClientCall();

    Client* client = nullptr;
    ClientSession* session = nullptr;  // nullptr once it is over and the completion waits.
    ClientSlot* slot = nullptr;        // While it is sent and not answered.
    WaitingRequest::Ptr waiting;       // While it is queued.
    Completion done;
    Status early;  // Why a deferred completion happens.
    Stage stage = Stage::none;
    bool ends = false;   // Its completion waits for the next turn.
    bool rests = false;  // The server pushed it back; its timer is that of the next attempt.
    CallTraits traits;
};

using CallId = base::SlotId;
using CallEntry = base::SlotTable<ClientCall>::Entry;
static_assert(sizeof(CallEntry) <= 200);
inline CallEntry& entry_of(ClientCall& call) { return base::SlotTable<ClientCall>::entry_of(call); }

}  // namespace weft::rpc
