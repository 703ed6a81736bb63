// Ranges of GroupCallOptions that do not depend on the group.
#include "base/range.h"
#include "coll/policy.h"
#include "coll/tree.h"

namespace weft::coll {

namespace {

using base::Unit;

constexpr base::RangedOption<GroupCallOptions> ranges[] = {
    {"priority",
     {Unit::number, 0, priority_max},
     [](const auto& one) -> std::int64_t { return one.priority; }},
    {"policy",
     {Unit::number, 0, 2},
     [](const auto& one) { return static_cast<std::int64_t>(Policy(one.policy)); }},
    {"topology.shape",
     {Unit::number, 0, 4},
     [](const auto& one) { return static_cast<std::int64_t>(one.topology.shape); }},
    {"topology.fanout",
     {Unit::number, fanout_min, fanout_max},
     [](const auto& one) {
         const Topology& topology = one.topology;
         const bool has_fanout = topology.shape > Topology::Shape::flat;
         return static_cast<std::int64_t>(has_fanout ? topology.fanout : fanout_min);
     }},
    {"reduction.operation",
     {Unit::number, 0, 6},
     [](const auto& one) { return static_cast<std::int64_t>(one.reduction.operation); }},
    {"reduction.number",
     {Unit::number, 0, 2},
     [](const auto& one) { return static_cast<std::int64_t>(one.reduction.number); }},
};
static_assert(static_cast<int>(Policy::best_effort) == 2 &&
              static_cast<int>(Topology::Shape::greedy) == 4 &&
              static_cast<int>(Reduction::Operation::method) == 6 &&
              static_cast<int>(Reduction::Number::f64) == 2);

}  // namespace

Status validate_ranges(const GroupCallOptions& options) {
    return base::validate_ranges("GroupCallOptions", options, ranges);
}

}  // namespace weft::coll
