#include "coll/gathering.h"

namespace weft::coll {

Gathering::Gathering(Interval interval, std::uint32_t root, std::uint32_t n)
    : interval_(interval),
      root_(root),
      n_(n),
      outcomes_(interval.size()),
      known_(interval.size(), false),
      missing_(interval.size()) {}

bool Gathering::set(RankOutcome outcome) {
    if (outcome.rank >= n_) return false;
    const std::uint32_t position = (outcome.rank + n_ - root_) % n_;
    if (position < interval_.first || position >= interval_.last) return false;
    const std::uint32_t at = position - interval_.first;
    if (known_[at]) return false;
    known_[at] = true;
    --missing_;
    outcomes_[at] = std::move(outcome);
    return true;
}

void Gathering::set_subtree(Interval child, std::vector<RankOutcome> outcomes) {
    for (RankOutcome& outcome : outcomes) {
        const std::uint32_t position =
            outcome.rank < n_ ? (outcome.rank + n_ - root_) % n_ : ~std::uint32_t{0};
        // A child speaks for its own subtree only.
        if (position >= child.first && position < child.last) set(std::move(outcome));
    }
    for (std::uint32_t position = child.first; position < child.last; ++position) {
        if (known_[position - interval_.first]) continue;
        set({rank_of(position),
             fail(Code::internal, "rank " + std::to_string(rank_of(child.first)) +
                                      " answered without an outcome for this rank")
                 .with_effect(Effect::unknown)
                 .with_stage(Stage::sent),
             {}});
    }
}

void Gathering::fail_subtree(Interval child, const Status& status) {
    const std::uint32_t dead = rank_of(child.first);
    set({dead, status, {}});
    const bool keeps = status.code() == Code::deadline_exceeded ||
                       status.code() == Code::failed_precondition ||
                       status.code() == Code::invalid_argument || status.code() == Code::cancelled;
    const Effect effect = status.effect() == Effect::none ? Effect::none : Effect::unknown;
    for (std::uint32_t position = child.first + 1; position < child.last; ++position) {
        set({rank_of(position),
             fail(keeps ? status.code() : Code::unavailable,
                  "not reached: below rank " + std::to_string(dead) + " (" +
                      std::string(status.peer()) + "), which failed with " +
                      std::string(name_of(status.code())))
                 .with_effect(effect)
                 .with_stage(effect == Effect::none ? Stage::queued : Stage::sent),
             {}});
    }
}

}  // namespace weft::coll
