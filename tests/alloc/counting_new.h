// Counts this thread's heap allocations, for the whole executable it is linked into.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::test {

std::uint64_t allocations();
// What this thread has asked for, less what it has given back.
std::int64_t live_bytes();
// The most that live_bytes() was since it was asked last.
std::int64_t take_peak_bytes();
// What the counting itself holds for those that live.
std::int64_t header_bytes();
// While it lives, this thread's next allocation behind so many others throws, once; and each of
// exactly so many bytes, where that is said.
class FailingNew {
  public:
    explicit FailingNew(std::uint64_t behind, std::size_t bytes = 0);
    ~FailingNew();
    FailingNew(const FailingNew&) = delete;
    FailingNew& operator=(const FailingNew&) = delete;
    static constexpr std::uint64_t none = UINT64_MAX;
    std::uint64_t failed() const;
};
// Under the address sanitizer and valgrind, which have operators of their own, they don't.
bool allocations_count();

}  // namespace weft::test
