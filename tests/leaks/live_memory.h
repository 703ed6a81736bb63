// Memory allocated by the C++ operators and not released yet, for the whole executable that this is
// linked into. libfabric is C and never calls them: growth is a leak of weft or of a test.
#pragma once

#include <cstddef>

namespace weft::test {

struct LiveMemory {
    std::ptrdiff_t blocks = 0;
    std::ptrdiff_t bytes = 0;         // Of the other blocks, with the C library's padding.
    std::ptrdiff_t large_blocks = 0;  // Buffers: 32 KiB or more each, not counted in the others.
    std::ptrdiff_t large_bytes = 0;
};

// Of all threads. Under the address sanitizer, which keeps its own operators, nothing is counted.
LiveMemory live_memory();

// Bytes that malloc has allocated, for these operators and for C: libfabric and the C library.
std::size_t malloc_bytes();

// One heap for all threads and one fixed mmap threshold, so that two readings differ only by the
// memory in use. Call before the first thread starts.
void steady_malloc();

}  // namespace weft::test
