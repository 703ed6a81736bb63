#include "coll/policy.h"

#include <algorithm>

#include "base/assert.h"

namespace weft::coll {

// Of all ranks: unknown if one is unknown, none if all are none, else applied.
static Effect effect_of(const std::vector<RankOutcome>& ranks) {
    bool has_acted = false;
    for (const RankOutcome& rank : ranks) {
        if (!rank.status.ok() && rank.status.effect() == Effect::unknown) return Effect::unknown;
        has_acted |= rank.status.ok() || rank.status.effect() == Effect::applied;
    }
    return has_acted ? Effect::applied : Effect::none;
}

Status policy_status(Policy policy, std::uint32_t quorum, const std::vector<RankOutcome>& ranks) {
    WEFT_DCHECK(std::is_sorted(ranks.begin(), ranks.end(),
                               [](const auto& a, const auto& b) { return a.rank < b.rank; }));
    const RankOutcome* first_failed = nullptr;
    std::uint32_t ok = 0;
    for (const RankOutcome& rank : ranks) {
        ok += rank.status.ok();
        if (!rank.status.ok() && !first_failed) first_failed = &rank;
    }
    switch (policy) {
        case Policy::best_effort: return {};
        case Policy::all: break;
        case Policy::quorum:
            if (ok >= quorum) return {};
            break;
    }
    if (!first_failed) return {};
    std::string context = "rank " + std::to_string(first_failed->rank);
    if (policy == Policy::quorum) {
        context = std::to_string(ok) + " of " + std::to_string(ranks.size()) + " ranks; " + context;
    }
    return Status(first_failed->status).with_effect(effect_of(ranks)).in(context);
}

}  // namespace weft::coll
