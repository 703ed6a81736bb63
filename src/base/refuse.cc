#include <weft/refuse.h>

#include <string>

#include <weft/status.h>

#include "base/assert.h"

namespace weft::detail {

void refuse_range(const char* call, std::uint64_t offset, std::uint64_t bytes, std::uint64_t size) {
    const std::string why = std::to_string(bytes) + " bytes from offset " + std::to_string(offset) +
                            " on are not inside its " + std::to_string(size) +
                            " bytes; compare `offset <= size && bytes <= size - offset` before, of "
                            "numbers that come from elsewhere";
    base::abort_misused(call, why.c_str());
}

void refuse_index(const char* call, std::uint64_t index, std::uint64_t size) {
    const std::string why = std::to_string(index) + " is not below its size of " +
                            std::to_string(size) + "; compare before";
    base::abort_misused(call, why.c_str());
}

void refuse_ranks(const char* call, std::uint64_t first, std::uint64_t last) {
    const std::string why = "from rank " + std::to_string(first) + " to rank " +
                            std::to_string(last) +
                            ": the first comes after the last; the lower one goes first";
    base::abort_misused(call, why.c_str());
}

void refuse_value(const char* call, const Status& status) {
    const std::string why =
        status.to_string() + "; compare ok() before, or take value(), which throws";
    base::abort_misused(call, why.c_str());
}

}  // namespace weft::detail
