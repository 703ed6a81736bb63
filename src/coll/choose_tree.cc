#include "coll/choose_tree.h"

#include <algorithm>

#include "base/assert.h"
#include "coll/scatter_bodies.h"

namespace weft::coll {

static std::vector<std::uint32_t> nonmembers_among(const RankSet& named, const RankSet& exclude,
                                                   const GroupView& view) {
    std::vector<std::uint32_t> nonmembers;
    for (const RankSet::Range& range : named.ranges()) {
        for (std::uint64_t rank = range.first; rank <= range.last; ++rank) {
            const auto one = static_cast<std::uint32_t>(rank);
            if (!view.find(one) && !exclude.contains(one)) nonmembers.push_back(one);
        }
    }
    return nonmembers;
}

Status validate(const std::optional<RankSet>& include) {
    const std::uint64_t named = include ? include->size() : 0;
    if (named <= GroupView::members_max) return {};
    return fail(Code::invalid_argument, "GroupCallOptions::include names " + std::to_string(named) +
                                            " ranks: expected at most " +
                                            std::to_string(GroupView::members_max));
}

static Result<Choice> choose_ranks(const CollectiveRequest& request) {
    const GroupCallOptions& options = request.options;
    GroupState& group = *request.group;
    Choice choice{
        {request.view ? *request.view : group.view_here(), {}, 0, false}, {}, 0, false, {}};
    const GroupView& view = choice.rank_order.view;
    const bool is_automatic = options.topology.shape == Topology::Shape::automatic;
    choice.rank_order.by_host =
        !options.reduction.ordered &&
        (options.topology.by_host || (is_automatic && group.shares_hosts(view)));
    const bool is_all = !request.include && request.exclude.empty() && group.all_participate(view);
    if (is_all) {  // The usual case: no walk over the members.
        choice.size = view.size();
        const Member* const own = group.own_rank ? view.find(*group.own_rank) : nullptr;
        if (own) {
            choice.place_self(static_cast<std::uint32_t>(own - view.members().data()),
                              options.reduction.ordered);
        }
        return choice;
    }
    if (Status status = validate(request.include); !status.ok()) return status;
    RankSet chosen;
    std::uint32_t in_front = 0;  // Chosen members before this runtime's own rank.
    bool is_in = false;
    for (const Member& member : view.members()) {
        if (!takes_part(member, request.include, request.exclude)) continue;
        const bool is_own = group.own_rank == member.rank;
        is_in |= is_own;
        if (!is_in) ++in_front;
        chosen.add(member.rank);
        ++choice.size;
    }
    if (request.include) {
        choice.nonmembers = nonmembers_among(*request.include, request.exclude, view);
    }
    if (choice.size == 0 && choice.nonmembers.empty()) {
        return fail(Code::invalid_argument,
                    "no rank takes part: all that are included are excluded or draining");
    }
    WEFT_DCHECK(in_front <= choice.size);
    if (choice.size < view.size()) choice.rank_order.ranks = chosen.ranges();
    if (is_in) choice.place_self(in_front, options.reduction.ordered);
    return choice;
}

Tree tree_of(const Topology& topology, const Costs& costs, std::uint32_t ranks, std::size_t bytes) {
    Tree tree;
    tree.fanout = topology.fanout;
    switch (topology.shape) {
        case Topology::Shape::automatic: return costs.tree(ranks, bytes);
        case Topology::Shape::flat: tree.shape = Shape::flat; break;
        case Topology::Shape::k_ary: tree.shape = Shape::k_ary; break;
        case Topology::Shape::k_nomial: tree.shape = Shape::k_nomial; break;
        case Topology::Shape::greedy: tree.shape = Shape::greedy; break;
    }
    return tree;
}

// The ranks with a body take part.
static Status choose_by_bodies(CollectiveRequest& request) {
    if (request.include || !request.exclude.empty()) {
        return fail(Code::invalid_argument, "a scatter takes neither include nor exclude");
    }
    if (Status status = sort_by_rank(request.bodies); !status.ok()) return status;
    WEFT_ASSERT(request.scatters);
    request.include.emplace();
    for (const auto& [rank, body] : request.bodies) request.include->add(rank);
    return {};
}

Status validate(const GroupCallOptions& options, const Tree& tree, std::uint32_t ranks,
                std::size_t nonmembers, bool runs_here) {
    if (Status status = validate(options.reduction); !status.ok()) return status;
    if (!tree.is_possible({runs_here ? 1u : 0u, ranks})) {
        return fail(Code::invalid_argument,
                    "GroupCallOptions::topology.shape is flat, which has at most " +
                        std::to_string(flat_max) + " children: " + std::to_string(ranks) +
                        " ranks take part; leave it automatic");
    }
    if (options.policy == Policy::quorum && options.quorum > ranks + nonmembers) {
        return fail(Code::invalid_argument, "GroupCallOptions::quorum is " +
                                                std::to_string(options.quorum) +
                                                ": expected at most the ranks that take part, " +
                                                std::to_string(ranks + nonmembers));
    }
    return {};
}

Result<Choice> choose(CollectiveRequest& request) {
    const GroupCallOptions& options = request.options;
    if (Status status = validate_ranges(options); !status.ok()) return status;
    if (request.scatters) {
        if (Status status = choose_by_bodies(request); !status.ok()) return status;
    }
    Result<Choice> choice = choose_ranks(request);
    if (!choice) return choice;
    std::size_t bytes = request.body.size();
    for (const RankBytes& one : request.bodies) bytes += one.second.size();
    choice->tree = tree_of(options.topology, request.group->costs, choice->size, bytes);
    WEFT_ASSERT(choice->size <= choice->rank_order.view.size());
    Status status =
        validate(options, choice->tree, choice->size, choice->nonmembers.size(), choice->runs_here);
    if (!status.ok()) return status;
    return choice;
}

}  // namespace weft::coll
