#include "leaks/live_memory.h"

#include <malloc.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace weft::test {

static constinit std::atomic<std::ptrdiff_t> blocks{0};
static constinit std::atomic<std::ptrdiff_t> bytes{0};
static constinit std::atomic<std::ptrdiff_t> large_blocks{0};
static constinit std::atomic<std::ptrdiff_t> large_bytes{0};

LiveMemory live_memory() { return {blocks, bytes, large_blocks, large_bytes}; }

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
extern "C" std::size_t __sanitizer_get_current_allocated_bytes();
std::size_t malloc_bytes() { return __sanitizer_get_current_allocated_bytes(); }
void steady_malloc() {}
#else
std::size_t malloc_bytes() {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
}
void steady_malloc() {
    ::mallopt(M_ARENA_MAX, 1);
    ::mallopt(M_MMAP_THRESHOLD, 256 << 10);
}
#endif

}  // namespace weft::test

#ifndef __SANITIZE_ADDRESS__

// GCC pairs new and delete by name and does not detect that both are replaced here.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

namespace {

void count(void* memory, std::ptrdiff_t sign) noexcept {
    using namespace weft::test;
    const auto size = static_cast<std::ptrdiff_t>(::malloc_usable_size(memory));
    const bool is_large = size >= 32 << 10;
    (is_large ? large_blocks : blocks).fetch_add(sign, std::memory_order_relaxed);
    (is_large ? large_bytes : bytes).fetch_add(sign * size, std::memory_order_relaxed);
}

void* counted(void* memory) noexcept {
    if (memory) count(memory, 1);
    return memory;
}

void* counted_or_throw(void* memory) {
    if (!memory) throw std::bad_alloc();
    return counted(memory);
}

void release(void* memory) noexcept {
    if (!memory) return;
    count(memory, -1);
    std::free(memory);
}

void* aligned(std::size_t size, std::align_val_t to) {
    void* memory = nullptr;
    return ::posix_memalign(&memory, static_cast<std::size_t>(to), size) == 0 ? memory : nullptr;
}

}  // namespace

void* operator new(std::size_t size) { return counted_or_throw(std::malloc(size)); }
void* operator new[](std::size_t size) { return counted_or_throw(std::malloc(size)); }
void* operator new(std::size_t size, const std::nothrow_t&) noexcept {
    return counted(std::malloc(size));
}
void* operator new[](std::size_t size, const std::nothrow_t&) noexcept {
    return counted(std::malloc(size));
}
void* operator new(std::size_t size, std::align_val_t to) {
    return counted_or_throw(aligned(size, to));
}
void* operator new[](std::size_t size, std::align_val_t to) {
    return counted_or_throw(aligned(size, to));
}
void operator delete(void* memory) noexcept { release(memory); }
void operator delete[](void* memory) noexcept { release(memory); }
void operator delete(void* memory, std::size_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t) noexcept { release(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { release(memory); }
void operator delete(void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }
void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept { release(memory); }

#endif
