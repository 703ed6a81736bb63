#include "na/verbs/message_memory.h"

#include <sys/mman.h>

#include <cinttypes>
#include <cstdio>
#include <memory>

namespace weft::na::verbs {

namespace {

constexpr int of_our_own = MAP_PRIVATE | MAP_ANONYMOUS;

// Bytes on large pages in the mapping that begins there, as the kernel reports (proc(5), smaps).
std::size_t large_page_bytes(const std::byte* begin) {
    const std::unique_ptr<std::FILE, int (*)(std::FILE*)> maps(std::fopen("/proc/self/smaps", "re"),
                                                               std::fclose);
    if (!maps) return 0;
    char line[512];
    std::uintptr_t from = 0, to = 0;
    std::size_t kib = 0;
    bool is_here = false;
    while (std::fgets(line, sizeof line, maps.get())) {
        if (std::sscanf(line, "%" SCNxPTR "-%" SCNxPTR " ", &from, &to) == 2) {
            is_here = from == reinterpret_cast<std::uintptr_t>(begin);
        } else if (is_here && std::sscanf(line, "AnonHugePages: %zu kB", &kib) == 1) {
            return kib * 1024;
        }
    }
    return 0;
}

}  // namespace

bool MessageMemory::make(std::uint32_t count, std::size_t message_bytes, bool on_large_pages) {
    WEFT_ASSERT(count_ == 0 && count != 0 && message_bytes != 0);
    constexpr std::size_t large_page = std::size_t{1} << large_page_shift;
    stride_ = (message_bytes + 63) / 64 * 64;
    count_ = count;
    const std::size_t bytes = (stride_ * count + large_page - 1) / large_page * large_page;
    if (on_large_pages && take_from_pool(bytes)) return true;
    // A mapping that begins where a large page may.
    void* const reserved = ::mmap(nullptr, bytes + 2 * large_page, PROT_NONE, of_our_own, -1, 0);
    if (reserved == MAP_FAILED) return false;
    reserved_ = {static_cast<std::byte*>(reserved), bytes + 2 * large_page};
    const auto begin = reinterpret_cast<std::uintptr_t>(reserved) / large_page + 1;
    void* const at = reinterpret_cast<void*>(begin * large_page);
    if (::mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return false;
    memory_ = {static_cast<std::byte*>(at), bytes};
    (void)::madvise(at, bytes, on_large_pages ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    (void)::madvise(at, bytes, MADV_DONTFORK);  // A fork's copy-on-write would move these pages.
    (void)::madvise(at, bytes, MADV_POPULATE_WRITE);  // A device will pin it all.
    if (on_large_pages && large_page_bytes(memory_.data()) == bytes) {
        page_shift_ = large_page_shift;
    }
    return true;
}

// Takes large pages that the administrator has reserved (vm.nr_hugepages), which are aligned.
bool MessageMemory::take_from_pool(std::size_t bytes) {
    constexpr int of_2_mib = MAP_HUGETLB | static_cast<int>(large_page_shift << MAP_HUGE_SHIFT);
    void* const at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, of_our_own | of_2_mib, -1, 0);
    if (at == MAP_FAILED) return false;
    (void)::madvise(at, bytes, MADV_DONTFORK);
    reserved_ = memory_ = {static_cast<std::byte*>(at), bytes};
    page_shift_ = large_page_shift;
    return true;
}

MessageMemory::~MessageMemory() {
    if (!reserved_.empty()) ::munmap(reserved_.data(), reserved_.size());
}

}  // namespace weft::na::verbs
