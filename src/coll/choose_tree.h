// The choice of the ranks and of the tree of one collective, by its options, the view and the
// measured costs.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coll/collective_request.h"
#include "coll/costs.h"
#include "coll/policy.h"
#include "coll/rank_order.h"
#include "coll/tree.h"

namespace weft::coll {

// The ranks that take part, and the tree.
struct Choice {
    RankOrder::Params rank_order;
    Tree tree;
    std::uint32_t size = 0;                 // 0: no included rank is a member.
    bool runs_here = false;                 // The root is this runtime.
    std::vector<std::uint32_t> nonmembers;  // Included, but not members.

    // This runtime is at this place. An ordered reduction has the lowest rank as its root, and an
    // origin at any other place acts from outside.
    void place_self(std::uint32_t place, bool ordered) {
        runs_here = !ordered || place == 0;
        if (runs_here) rank_order.root = place;
    }
};

// For a scatter, sorts the bodies and includes their ranks. Errors: INVALID_ARGUMENT.
Result<Choice> choose(CollectiveRequest& request);

// For that many ranks and bytes of body.
Tree tree_of(const Topology& topology, const Costs& costs, std::uint32_t ranks, std::size_t bytes);

// Included, or, without `include`, not draining; and not excluded.
inline bool takes_part(const Member& member, const std::optional<RankSet>& include,
                       const RankSet& exclude) {
    const bool is_named = include ? include->contains(member.rank) : !member.draining;
    return is_named && !exclude.contains(member.rank);
}

// Errors: INVALID_ARGUMENT: more ranks than a group has members.
Status validate(const std::optional<RankSet>& include);
// Whether the options are possible, with that many ranks and included nonmembers. Errors:
// INVALID_ARGUMENT.
Status validate(const GroupCallOptions& options, const Tree& tree, std::uint32_t ranks,
                std::size_t nonmembers, bool runs_here);

}  // namespace weft::coll
