// Counts this thread's heap allocations, for the whole executable it is linked into.
#pragma once

#include <cstdint>

namespace weft::test {

std::uint64_t allocations();
// What this thread has asked for, less what it has given back.
std::int64_t live_bytes();
// The most that live_bytes() was since it was asked last.
std::int64_t take_peak_bytes();
// What the counting itself holds for those that live.
std::int64_t header_bytes();
// Under the address sanitizer and valgrind, which have operators of their own, they don't.
bool allocations_count();

}  // namespace weft::test
