#include <weft/subgroup.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "base/assert.h"

namespace weft {

Subgroup::Table::Table(RankSet members) : ranks(std::move(members)) {
    first_own.reserve(ranks.ranges().size());
    for (const RankSet::Range& range : ranks.ranges()) {
        first_own.push_back(size);
        size += range.last - range.first + 1;
    }
}

Subgroup::Subgroup(Group group, RankSet members)
    : group_(std::move(group)), table_(std::make_shared<const Table>(std::move(members))) {}

Result<Subgroup> Subgroup::make(Group group, RankSet members) {
    if (!group) return detail::empty_group();
    if (members.empty())
        return fail(Code::invalid_argument,
                    "a subgroup without members: expected at least one rank");
    if (members.size() > GroupView::members_max) {
        return fail(Code::invalid_argument, "a subgroup of " + std::to_string(members.size()) +
                                                " members: expected at most " +
                                                std::to_string(GroupView::members_max));
    }
    return Subgroup(std::move(group), std::move(members));
}

std::uint32_t Subgroup::rank_in_group(std::uint32_t rank) const {
    if (rank >= size()) detail::refuse_index("Subgroup::rank_in_group()", rank, size());
    const std::size_t at = range_of(rank);
    return members().ranges()[at].first + (rank - table_->first_own[at]);
}

std::size_t Subgroup::range_of(std::uint32_t rank) const {
    const std::vector<std::uint32_t>& firsts = table_->first_own;
    const auto behind = std::upper_bound(firsts.begin(), firsts.end(), rank);
    return static_cast<std::size_t>(behind - firsts.begin()) - 1;
}

std::optional<std::uint32_t> Subgroup::own_rank(std::uint32_t rank) const {
    const std::vector<RankSet::Range>& ranges = members().ranges();
    const auto at = std::lower_bound(
        ranges.begin(), ranges.end(), rank,
        [](const RankSet::Range& range, std::uint32_t one) { return range.last < one; });
    if (at == ranges.end() || rank < at->first) return std::nullopt;
    return table_->first_own[static_cast<std::size_t>(at - ranges.begin())] + (rank - at->first);
}

Status Subgroup::no_such_rank(std::uint32_t rank) const {
    return fail(Code::invalid_argument, "a subgroup of " + std::to_string(size()) +
                                            " has no rank " + std::to_string(rank) +
                                            ", only 0 to " + std::to_string(size() - 1));
}

Result<RankSet> Subgroup::to_group_ranks(const RankSet& own) const {
    RankSet ranks;
    for (const RankSet::Range& range : own.ranges()) {
        if (range.last >= size()) {
            return no_such_rank(range.last);
        }
        // As many at a time as are adjacent in the group.
        for (std::uint32_t rank = range.first; rank <= range.last;) {
            const std::uint32_t first = rank_in_group(rank);
            const std::uint32_t there = members().ranges()[range_of(rank)].last - first;
            const std::uint32_t more = std::min(there, range.last - rank);
            ranks.add(first, first + more);
            rank += more + 1;
        }
    }
    return ranks;
}

Result<Subgroup::Chosen> Subgroup::chosen(const GroupCallOptions& options) const {
    Chosen chosen{members(), {}};
    if (options.include) {
        Result<RankSet> include = to_group_ranks(*options.include);
        if (!include) return std::move(include).status();
        chosen.include = *std::move(include);
    }
    if (options.exclude) {
        Result<RankSet> exclude = to_group_ranks(*options.exclude);
        if (!exclude) return std::move(exclude).status();
        chosen.exclude = *std::move(exclude);
    }
    return chosen;
}

// Ranks of the group, which are in order, become those of the subgroup.
GroupCompletion Subgroup::translate_ranks(GroupCompletion done) const {
    WEFT_ASSERT(done);
    auto completion = std::make_shared<GroupCompletion>(std::move(done));
    return [self = *this, completion](GroupOutcome outcome) {
        std::erase_if(outcome.ranks, [&](RankOutcome& one) {
            const std::optional<std::uint32_t> own = self.own_rank(one.rank);
            one.rank = own.value_or(0);
            return !own.has_value();
        });
        (*completion)(std::move(outcome));
    };
}

template <class Begin>
CollectiveId Subgroup::begin(GroupCallOptions options, GroupCompletion done, Begin&& begin) const {
    if (!done) detail::refuse_empty("an operation of weft::Subgroup, as its completion");
    const Result<Chosen> ranks = chosen(options);
    if (!ranks) {
        group_.refuse(ranks.status(), options, std::move(done));
        return 0;
    }
    options.include = &ranks->include;
    options.exclude = &ranks->exclude;
    return begin(options, translate_ranks(std::move(done)));
}

CollectiveId Subgroup::collective(const MethodId& method, const BodyWriter& body,
                                  const GroupCallOptions& options, GroupCompletion done) const {
    return begin(options, std::move(done),
                 [&](const GroupCallOptions& with, GroupCompletion completion) {
                     return group_.collective(method, body, with, std::move(completion));
                 });
}

CollectiveId Subgroup::scatter(const MethodId& method, std::span<const RankBody> bodies,
                               const GroupCallOptions& options, GroupCompletion done) const {
    if (!done) detail::refuse_empty("Subgroup::scatter(), as its completion");
    std::vector<RankBody> of_group(bodies.begin(), bodies.end());
    for (RankBody& one : of_group) {
        if (one.rank >= size()) {
            group_.refuse(no_such_rank(one.rank), options, std::move(done));
            return 0;
        }
        one.rank = rank_in_group(one.rank);
    }
    return group_.scatter(method, of_group, options, translate_ranks(std::move(done)));
}

CollectiveId Subgroup::all_gather(std::string_view name, ByteView value,
                                  const GroupCallOptions& options, GroupCompletion done) const {
    return begin(options, std::move(done),
                 [&](const GroupCallOptions& with, GroupCompletion completion) {
                     return group_.all_gather(name, value, with, std::move(completion));
                 });
}

Result<Channel> Subgroup::channel(std::uint32_t rank) const {
    if (rank < size()) return group_.channel(rank_in_group(rank));
    return fail(Code::out_of_range, "a subgroup of " + std::to_string(size()) + " has no rank " +
                                        std::to_string(rank) + ", only 0 to " +
                                        std::to_string(size() - 1));
}

}  // namespace weft
