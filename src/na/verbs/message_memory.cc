#include "na/verbs/message_memory.h"

#include <sys/mman.h>

namespace weft::na::verbs {

static constexpr std::size_t large_page = 2u << 20;

bool MessageMemory::make(std::uint32_t count, std::size_t message_bytes, bool on_large_pages) {
    stride_ = (message_bytes + 63) / 64 * 64;
    const std::size_t bytes = (stride_ * count + large_page - 1) / large_page * large_page;
    constexpr int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void* at = MAP_FAILED;
    if (on_large_pages) {
        at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags | MAP_HUGETLB, -1, 0);
    }
    if (at == MAP_FAILED) at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (at == MAP_FAILED) return false;
    (void)::madvise(at, bytes, on_large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    (void)::madvise(at, bytes, MADV_DONTFORK);  // A fork's copy-on-write would move our own pages.
    memory_ = {static_cast<std::byte*>(at), bytes};
    count_ = count;
    return true;
}

MessageMemory::~MessageMemory() {
    if (!memory_.empty()) ::munmap(memory_.data(), memory_.size());
}

}  // namespace weft::na::verbs
