#include "alloc/counting_new.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>
#include <utility>

namespace weft::test {

static thread_local std::uint64_t count = 0;
static thread_local std::uint64_t all_bytes = 0;
static thread_local std::int64_t live = 0;
static thread_local std::int64_t headers = 0;
static thread_local std::int64_t peak = 0;
static thread_local std::uint64_t behind = FailingNew::none;
static thread_local std::size_t failing_bytes = 0;
static thread_local std::uint64_t failures = 0;
std::uint64_t allocations() { return count; }
std::uint64_t allocated_bytes() { return all_bytes; }
FailingNew::FailingNew(std::uint64_t allocations, std::size_t bytes) {
    behind = allocations;
    failing_bytes = bytes;
    failures = 0;
}
FailingNew::~FailingNew() {
    behind = none;
    failing_bytes = 0;
}
std::uint64_t FailingNew::failed() const { return failures; }
[[maybe_unused]] static bool fails(std::size_t bytes) {
    const bool is_next = behind != FailingNew::none && behind-- == 0;
    if (is_next) behind = FailingNew::none;
    if (!is_next && (failing_bytes == 0 || bytes != failing_bytes)) return false;
    ++failures;
    return true;
}
std::int64_t live_bytes() { return live; }
std::int64_t header_bytes() { return headers; }
std::int64_t take_peak_bytes() { return std::exchange(peak, live); }
bool allocations_count() {
    const std::uint64_t before = count;
    ::operator delete(::operator new(1));
    return count > before;
}

}  // namespace weft::test

// The address sanitizer keeps its own operators, which check more; nothing is counted under it.
#ifndef __SANITIZE_ADDRESS__

// GCC pairs new and delete by name and does not detect that both are replaced here.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"

// Stored before each allocation, because not every form of delete gets the size.
struct alignas(std::max_align_t) Size {
    std::size_t bytes;
};

[[gnu::noinline]] void* operator new(std::size_t bytes) {
    ++weft::test::count;
    if (weft::test::fails(bytes)) throw std::bad_alloc();
    auto* const size = static_cast<Size*>(std::malloc(sizeof(Size) + bytes));
    if (!size) throw std::bad_alloc();
    size->bytes = bytes;
    weft::test::all_bytes += bytes;
    weft::test::live += static_cast<std::int64_t>(bytes);
    weft::test::peak = std::max(weft::test::peak, weft::test::live);
    weft::test::headers += static_cast<std::int64_t>(sizeof(Size));
    return size + 1;
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
    if (!memory) return;
    Size* const size = static_cast<Size*>(memory) - 1;
    weft::test::live -= static_cast<std::int64_t>(size->bytes);
    weft::test::headers -= static_cast<std::int64_t>(sizeof(Size));
    std::free(size);
}
// All forms are replaced: those of the thread sanitizer would return memory without a size before
// it.
void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    try {
        return operator new(bytes);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}
void* operator new[](std::size_t bytes) { return operator new(bytes); }
void* operator new[](std::size_t bytes, const std::nothrow_t& nothrow) noexcept {
    return operator new(bytes, nothrow);
}
void operator delete[](void* memory) noexcept { operator delete(memory); }
void operator delete(void* memory, std::size_t) noexcept { operator delete(memory); }
void operator delete[](void* memory, std::size_t) noexcept { operator delete(memory); }

#endif
