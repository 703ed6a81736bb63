#pragma once

#include <cstdint>
#include <type_traits>

#include <weft/time.h>

namespace weft {

struct RegionRef;

inline constexpr std::uint8_t priority_max = 7;

// Per call. An aggregate for designated initialisers: `{.timeout = 500ms}`.
//
// Trivially copyable on purpose: g++ 12 destroys an aggregate temporary with non-trivial members
// twice inside a co_await expression.
struct CallOptions {
    // Covers everything from the call to its reply. Zero: the method's own (options.proto), else
    // the runtime's default (30 s). Negative, as what is left of a time that is over: it ends with
    // DEADLINE_EXCEEDED, effect none. `no_timeout` must be asked for by name. A server is told at
    // most 71 minutes (32 bits of microseconds): its handlers see that deadline for longer ones.
    Duration timeout{};
    // Memory of this runtime, of at most 8 KiB, that the handler is going to get or put to, as the
    // request names it: what it may read is copied into the request, and what it puts comes with
    // the reply, so that neither costs a round trip. What does not fit goes as bulk always does.
    // For the handler a put that rides has succeeded when it is on its way ahead of the reply; it
    // is seen here when the completion runs, and not before. After one, a transfer of the handler
    // that overlaps the range and does not fit in it is refused with FAILED_PRECONDITION. When what
    // was put can't be written here the call ends so, too, with effect applied.
    // The reference has to live until the call is made, the region until it is over. Calls of a
    // group carry nothing.
    const RegionRef* rides = nullptr;
    // Running it twice is the same as once: when the server restarts in between, the call is sent
    // to its next life too. A method that says so in its .proto needs not be told here.
    bool idempotent = false;
    // From 0 to priority_max: of the calls that wait for one server, those of the highest go first.
    // More is refused with INVALID_ARGUMENT. Without effect on transfers.
    std::uint8_t priority = 0;
    // What a handler starts ends with its call: it is cancelled with it, and has no later deadline.
    // This one goes on by itself.
    bool detached = false;
};
static_assert(std::is_trivially_copyable_v<CallOptions>);

inline constexpr Duration no_timeout = Duration::max();

}  // namespace weft
