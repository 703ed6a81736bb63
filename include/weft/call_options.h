// Options of one call.
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
    // the runtime's default (30 s). Negative, as the rest of an expired time: the call ends with
    // DEADLINE_EXCEEDED, effect none. `no_timeout` must be set by name. A server receives at most
    // 71 minutes (32 bits of microseconds): its handlers see that deadline for longer ones.
    Duration timeout{};
    // Memory of this runtime, of at most 8 KiB, that the handler is going to get or put to, by a
    // reference in the request. Its readable bytes are copied into the request, and bytes that the
    // handler puts arrive with the reply, so neither costs a round trip. Bytes that do not fit are
    // transferred as other bulk.
    //
    // For the handler an inline put has succeeded when it is sent ahead of the reply; at the client
    // it is visible when the completion runs, and not before. After one, a transfer of the handler
    // that overlaps the range and does not fit in it is refused with FAILED_PRECONDITION. When the
    // client's memory can't be written, the call ends with FAILED_PRECONDITION, or
    // PERMISSION_DENIED for a closed region; effect applied.
    //
    // The reference must live until the function that starts the call returns, the region until the
    // call has completed. Calls of a group carry no inline bulk.
    const RegionRef* inline_bulk = nullptr;
    // True: running the call twice has the effect of running it once. When the server restarts in
    // between, the call is sent to its next incarnation, too, if the request fits one message, and
    // for at most four restarts. Methods with this option in their
    // .proto need no flag here.
    bool idempotent = false;
    // From 0 to priority_max: of the calls that wait for one server, those of the highest priority
    // are sent first, after those that handlers make. A larger value is refused with
    // INVALID_ARGUMENT. Without effect on transfers.
    std::uint8_t priority = 0;
    // False: a call that a handler starts ends with the handler's call: it is cancelled with it,
    // and has no later deadline. True: it is independent of that call.
    bool detached = false;
};
static_assert(std::is_trivially_copyable_v<CallOptions>);

inline constexpr Duration no_timeout = Duration::max();

}  // namespace weft
