// The options of a collective that need no view: their ranges, and when its policy is met. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include <weft/group.h>

namespace weft::coll {

// Errors: INVALID_ARGUMENT.
Status validate_ranges(const GroupCallOptions& options);

// Among that many ranks, which take part.
inline std::uint32_t quorum_of(const GroupCallOptions& options, std::size_t ranks) {
    return options.quorum != 0 ? options.quorum : static_cast<std::uint32_t>(ranks / 2 + 1);
}
// `ranks` in order. `quorum`: for Policy::quorum.
Status policy_status(Policy policy, std::uint32_t quorum, const std::vector<RankOutcome>& ranks);

}  // namespace weft::coll
