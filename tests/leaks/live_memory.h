// What the C++ operators have handed out and not got back, for the whole executable that this is
// linked into. libfabric is C and never calls them: what grows here is weft's, or a test's.
#pragma once

#include <cstddef>

namespace weft::test {

struct LiveMemory {
    std::ptrdiff_t blocks = 0;
    std::ptrdiff_t bytes = 0;         // Of these, as much as the C library set aside.
    std::ptrdiff_t large_blocks = 0;  // Buffers: 32 KiB and more each, not among the others.
    std::ptrdiff_t large_bytes = 0;
};

// All threads'. Under the address sanitizer, whose operators stay, nothing is counted.
LiveMemory live_memory();

// Bytes that malloc has handed out, to these operators and to C: libfabric and the C library.
std::size_t malloc_bytes();

// One heap for all threads and one size from which on blocks are mapped on their own, so that two
// readings differ by what is in use and by little else. Before the first thread.
void steady_malloc();

}  // namespace weft::test
