// The time that a test waits for an expected event, and the tolerance with which it checks promised
// times.
#pragma once

#include <weft/time.h>

namespace weft::test {

// Sanitizers check each access, and the kernel unmaps the memory of a killed process, shadow
// included, before it closes its sockets.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int slowness = 10;
#elif !defined(NDEBUG)
inline constexpr int slowness = 4;
#else
inline constexpr int slowness = 1;
#endif

// Only distinguishes a hang from a busy machine; a test that passes never waits that long.
inline constexpr Duration test_timeout = slowness == 1 ? 30s : 60s;

// A promised time: exact where the code is optimised; elsewhere its order of magnitude.
constexpr Duration promised(Duration limit) { return limit * slowness; }

}  // namespace weft::test
