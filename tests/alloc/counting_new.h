// Counts this thread's heap allocations, for the whole executable it is linked into.
#pragma once

#include <cstdint>

namespace weft::test {

std::uint64_t allocations();

}  // namespace weft::test
