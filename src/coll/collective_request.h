// A collective to begin, as its caller specifies it, and the outcome of one that did not begin.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <weft/group.h>

#include "coll/group_state.h"

namespace weft::coll {

// The body for one rank.
using RankBytes = std::pair<std::uint32_t, std::vector<std::byte>>;

struct CollectiveRequest {
    // ---- where
    CollectiveId id = 0;  // CollectiveHost::new_id()
    std::shared_ptr<GroupState> group;
    std::optional<GroupView> view;  // The view to run in; else the group's at the start.
    std::uint64_t method = 0;

    // ---- how
    GroupCallOptions options;        // Without include and exclude, which follow.
    std::optional<RankSet> include;  // The set of the options.
    RankSet exclude;
    bool delivers_rest = true;  // Also delivers to ranks that the policy does not wait for.
    TimePoint deadline = never;

    // ---- what
    std::vector<std::byte> body;    // For all ranks; or,
    std::vector<RankBytes> bodies;  // for a scatter, one for each rank.
    bool scatters = false;
    GroupCompletion done;
};

// Of a collective that did not begin, or that knows nothing of its ranks.
inline GroupOutcome failed_outcome(const GroupState& group, const Status& why) {
    GroupOutcome outcome;
    outcome.status = why;
    outcome.epoch = group.view().epoch();
    return outcome;
}

}  // namespace weft::coll
