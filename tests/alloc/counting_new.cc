#include "alloc/counting_new.h"

#include <cstdlib>
#include <new>

namespace weft::test {

static thread_local std::uint64_t count = 0;
std::uint64_t allocations() { return count; }

}  // namespace weft::test

// Under the address sanitizer its own operators stay, which know more; nothing is counted there.
#ifndef __SANITIZE_ADDRESS__

// GCC pairs new and delete by name and does not see that both are ours.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

void* operator new(std::size_t bytes) {
    ++weft::test::count;
    if (void* memory = std::malloc(bytes)) return memory;
    throw std::bad_alloc();
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

#endif
