// Counts this thread's heap allocations, for the whole executable that it is linked into.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::test {

std::uint64_t allocations();
// All bytes that this thread has ever allocated.
std::uint64_t allocated_bytes();
// Bytes that this thread has allocated, less the bytes that it has freed.
std::int64_t live_bytes();
// The maximum of live_bytes() since the last call.
std::int64_t take_peak_bytes();
// The memory of the counting itself for live blocks.
std::int64_t header_bytes();
// During its lifetime this thread's next allocation after `after` others throws, once; and each
// allocation of exactly that many bytes, where a size is given.
class FailingNew {
  public:
    explicit FailingNew(std::uint64_t behind, std::size_t bytes = 0);
    ~FailingNew();
    FailingNew(const FailingNew&) = delete;
    FailingNew& operator=(const FailingNew&) = delete;
    static constexpr std::uint64_t none = UINT64_MAX;
    std::uint64_t failed() const;
};
// False under the address sanitizer and valgrind, which have operators of their own.
bool allocations_count();

}  // namespace weft::test
