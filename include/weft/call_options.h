#pragma once

#include <cstdint>
#include <type_traits>

#include <weft/time.h>

namespace weft {

// Per call. An aggregate for designated initialisers: `{.timeout = 500ms}`.
//
// Trivially copyable on purpose: g++ 12 destroys an aggregate temporary with non-trivial members
// twice inside a co_await expression.
struct CallOptions {
    // Covers everything from the call to its reply. Zero: the method's own (options.proto), else
    // the runtime's default (30 s). `no_timeout` must be asked for by name. A server is told at
    // most 71 minutes (32 bits of microseconds): its handlers see that deadline for longer ones.
    Duration timeout{};
};
static_assert(std::is_trivially_copyable_v<CallOptions>);

inline constexpr Duration no_timeout = Duration::max();

}  // namespace weft
