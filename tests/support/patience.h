// How long a test waits for what must happen, and how exactly it holds weft to a promise of time.
#pragma once

#include <weft/time.h>

namespace weft::test {

// Sanitizers check each access, and the kernel takes the memory of a killed process apart, shadow
// included, before it closes its sockets.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr int slowness = 10;
#elif !defined(NDEBUG)
inline constexpr int slowness = 4;
#else
inline constexpr int slowness = 1;
#endif

// Tells a hang from a busy machine and nothing else; a test that passes never waits so long.
inline constexpr Duration patience = slowness == 1 ? 30s : 60s;

// A promise of time, to the letter where the code is optimised; elsewhere its order of magnitude.
constexpr Duration promised(Duration limit) { return limit * slowness; }

}  // namespace weft::test
