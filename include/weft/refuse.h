// Aborts with a message: arguments out of range, in functions that return no Status, and the value
// of a Result that has none.
#pragma once

#include <cstdint>

namespace weft {
class Status;
}

namespace weft::detail {

// Each writes "weft: CALL: " with the numbers and the remedy to standard error, and aborts.
//
// For a range of `bytes` from `offset` on that is not inside `size` bytes.
[[noreturn]] void refuse_range(const char* call, std::uint64_t offset, std::uint64_t bytes,
                               std::uint64_t size);
// For an index that is not below `size`.
[[noreturn]] void refuse_index(const char* call, std::uint64_t index, std::uint64_t size);
// For a range of ranks with its first rank after its last.
[[noreturn]] void refuse_ranks(const char* call, std::uint64_t first, std::uint64_t last);

// For the value of a Result that has none; `status` is the reason.
[[noreturn, gnu::cold, gnu::noinline]] void refuse_value(const char* call, const Status& status);

// Also correct where the sum overflows.
constexpr bool is_inside(std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
    return offset <= size && bytes <= size - offset;
}

}  // namespace weft::detail
