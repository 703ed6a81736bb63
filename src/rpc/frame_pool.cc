// Coroutine frames, cached per thread by size: coroutines in a steady state allocate nothing.
#include <array>
#include <new>

#include <weft/task.h>
#include <weft/thread_cache.h>

#include "base/assert.h"

// AddressSanitizer reports the use of a released frame.
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(from, bytes) ((void)0)
#define ASAN_UNPOISON_MEMORY_REGION(from, bytes) ((void)0)
#endif

namespace weft::detail {

namespace {

constexpr std::size_t class_bytes = 256;
constexpr std::size_t classes = 8;
constexpr std::uint32_t kept_max = 64;  // Per class and thread: 16 to 128 KiB.

struct FreeFrame {
    FreeFrame* next;
};

void release_frames(ThreadCache&) noexcept;

struct Pool : ThreadCache {
    constexpr Pool() : ThreadCache{&release_frames} { kept.fill(kept_max); }
    std::array<FreeFrame*, classes> free{};
    std::array<std::uint32_t, classes> kept{};  // kept_max: full or not registered.
};

constinit thread_local Pool pool;

void release_frames(ThreadCache&) noexcept {
    for (FreeFrame*& list : pool.free) {
        while (FreeFrame* frame = list) {
            ASAN_UNPOISON_MEMORY_REGION(frame, sizeof *frame);
            list = frame->next;
            ::operator delete(frame);
        }
    }
    pool.kept.fill(kept_max);
}

bool keeps_more(std::size_t at) noexcept {
    if (pool.kept[at] < kept_max) [[likely]]
        return true;
    if (pool.is_registered || !register_thread_cache(pool)) return false;
    pool.kept.fill(0);
    return true;
}

std::size_t class_of(std::size_t bytes) { return (bytes + class_bytes - 1) / class_bytes - 1; }

}  // namespace

void* allocate_frame(std::size_t bytes) {
    WEFT_DCHECK(bytes != 0);
    const std::size_t at = class_of(bytes);
    if (at >= classes) return ::operator new(bytes);
    if (FreeFrame* frame = pool.free[at]) {
        ASAN_UNPOISON_MEMORY_REGION(frame, (at + 1) * class_bytes);
        WEFT_DCHECK(pool.kept[at] != 0);
        pool.free[at] = frame->next;
        --pool.kept[at];
        return frame;
    }
    return ::operator new((at + 1) * class_bytes);
}

void release_frame(void* frame, std::size_t bytes) noexcept {
    const std::size_t at = class_of(bytes);
    if (at >= classes || !keeps_more(at)) return ::operator delete(frame);
    pool.free[at] = ::new (frame) FreeFrame{pool.free[at]};
    ++pool.kept[at];
    ASAN_POISON_MEMORY_REGION(frame, (at + 1) * class_bytes);
}

}  // namespace weft::detail
