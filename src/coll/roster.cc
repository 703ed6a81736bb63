#include "coll/roster.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "base/assert.h"
#include "coll/tree.h"
#include "group/host.h"

namespace weft::coll {

// `visit(index)` for each member of these ranks, in order.
template <class Visit>
static void for_each_among(const GroupView& view, std::span<const RankSet::Range> ranks,
                           Visit&& visit) {
    const std::vector<Member>& members = view.members();
    auto at = members.begin();
    for (const RankSet::Range& range : ranks) {
        at = std::lower_bound(
            at, members.end(), range.first,
            [](const Member& member, std::uint32_t rank) { return member.rank < rank; });
        for (; at != members.end() && at->rank <= range.last; ++at) {
            visit(static_cast<std::uint32_t>(at - members.begin()));
        }
    }
}

std::uint32_t members_among(const GroupView& view, std::span<const RankSet::Range> ranks) {
    if (ranks.empty()) return view.size();
    std::uint32_t count = 0;
    for_each_among(view, ranks, [&](std::uint32_t) { ++count; });
    return count;
}

Roster::Roster(Parts parts)
    : view_(std::move(parts.view)), ranks_(std::move(parts.ranks)), root_(parts.root) {
    if (ranks_.empty()) {
        all_.last = view_->size();
    } else {
        for_each_among(*view_, ranks_, [&](std::uint32_t index) { order_.push_back(index); });
        all_.last = static_cast<std::uint32_t>(order_.size());
    }
    WEFT_ASSERT(root_ < all_.last);
    if (!order_.empty()) std::rotate(order_.begin(), order_.begin() + root_, order_.end());
    if (parts.by_host) order_by_host();
}

Roster::Roster(std::uint32_t first, MemberList named, std::uint32_t root, bool by_host)
    : named_(std::move(named)), root_(root), all_{first, first + named_.size()} {
    if (by_host) find_hosts();
}

const Member& Roster::at(std::uint32_t position) const {
    WEFT_ASSERT(view_);
    return view_->at(order_.empty() ? rank_at(position, root_, all_.last) : order_[position]);
}

const Member& Roster::at(std::uint32_t position, Member& room) const {
    if (view_) return at(position);
    return room = named_.at(position - all_.first);
}

std::string_view Roster::host_at(std::uint32_t position) const {
    return view_ ? group::host_of(at(position)) : named_.host_at(position - all_.first);
}

// Hosts in the order in which they first come, the root's so first; within each, members likewise.
void Roster::order_by_host() {
    std::map<std::string_view, std::vector<std::uint32_t>> hosts;
    std::vector<const std::vector<std::uint32_t>*> in_order;
    for (std::uint32_t position = 0; position < all_.last; ++position) {
        const std::uint32_t index =
            order_.empty() ? rank_at(position, root_, all_.last) : order_[position];
        std::vector<std::uint32_t>& there = hosts[group::host_of(view_->at(index))];
        if (there.empty()) in_order.push_back(&there);
        there.push_back(index);
    }
    order_.clear();
    for (const auto* there : in_order) order_.insert(order_.end(), there->begin(), there->end());
    find_hosts();
}

void Roster::find_hosts() {
    std::string_view before;
    for (std::uint32_t position = all_.first; position < all_.last; ++position) {
        const std::string_view host = host_at(position);
        if (position == all_.first || host != before) hosts_.push_back(position);
        before = host;
    }
}

}  // namespace weft::coll
