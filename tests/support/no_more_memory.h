// A process that has no memory left for large blocks. Limits on address space break the sanitizers,
// which reserve terabytes: no such test runs under them.
#pragma once

#include <sys/resource.h>

#include <cstddef>
#include <fstream>
#include <new>

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_TEST_MEMORY_LIMITS 1
#endif

namespace weft::test {

// Limits the address space to `bytes` more than now. False: it can't be limited.
inline bool limit_address_space(std::size_t bytes) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t space = pages * 4096 + bytes;
    const rlimit little{space, space};
    return pages != 0 && ::setrlimit(RLIMIT_AS, &little) == 0;
}

// From now on no block of `bytes` can be allocated, smaller blocks usually can. For a child
// process: nothing is released. False: not possible.
inline bool use_up_blocks_of(std::size_t bytes) {
    if (!limit_address_space(16 * bytes)) return false;
    for (int i = 0; i < 100'000; ++i) {
        static std::byte* volatile kept;  // Keeps the compiler from removing the allocation.
        kept = new (std::nothrow) std::byte[bytes];
        if (!kept) return true;
    }
    return false;
}

}  // namespace weft::test
