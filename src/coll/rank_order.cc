#include "coll/rank_order.h"

#include <algorithm>
#include <string_view>

#include "base/assert.h"

namespace weft::coll {

// `visit(index, count)` for each run of adjacent members with these ranks, in order.
template <class Visit>
static void for_each_run(const GroupView& view, std::span<const RankSet::Range> ranks,
                         Visit&& visit) {
    const std::vector<Member>& members = view.members();
    const auto is_below = [](const Member& member, std::uint32_t rank) {
        return member.rank < rank;
    };
    auto end = members.begin();
    for (const RankSet::Range& range : ranks) {
        const auto first = std::lower_bound(end, members.end(), range.first, is_below);
        end = std::upper_bound(
            first, members.end(), range.last,
            [](std::uint32_t rank, const Member& member) { return rank < member.rank; });
        if (first == end) continue;
        visit(static_cast<std::uint32_t>(first - members.begin()),
              static_cast<std::uint32_t>(end - first));
    }
}

std::uint32_t members_among(const GroupView& view, std::span<const RankSet::Range> ranks) {
    if (ranks.empty()) return view.size();
    std::uint32_t count = 0;
    for_each_run(view, ranks, [&](std::uint32_t, std::uint32_t there) { count += there; });
    return count;
}

RankOrder::RankOrder(Params params)
    : view_(std::move(params.view)), ranks_(std::move(params.ranks)), root_(params.root) {
    if (ranks_.empty()) {
        all_.last = view_->size();
    } else {
        runs_.reserve(ranks_.size());
        for_each_run(*view_, ranks_, [&](std::uint32_t index, std::uint32_t count) {
            runs_.push_back({all_.last, index});
            all_.last += count;
        });
    }
    WEFT_ASSERT(root_ < all_.last);
    if (!params.by_host) return;
    if (!params.hosts) params.hosts = std::make_shared<HostOrder>(*view_);
    order_ = runs_.empty() ? std::move(params.hosts) : order_of(*params.hosts);
    rotation_ = order_->rotation_for(index_at(root_));
}

RankOrder::RankOrder(std::uint32_t first, MemberList named, std::uint32_t root, bool by_host)
    : named_(std::move(named)), root_(root), all_{first, first + named_.size()} {
    if (!by_host) return;
    std::string_view before;
    for (std::uint32_t i = 0; i < named_.size(); ++i) {
        const std::string_view host = named_.host_at(i);
        if (i == 0 || host != before) hosts_.push_back(i);
        before = host;
    }
}

bool RankOrder::matches(const Params& params) const {
    return view_ && view_->digest() == params.view.digest() && root_ == params.root &&
           (order_ != nullptr) == params.by_host && ranks_ == params.ranks;
}

std::uint32_t RankOrder::index_at(std::uint32_t place) const {
    if (runs_.empty()) return place;
    const auto next =
        std::upper_bound(runs_.begin(), runs_.end(), place,
                         [](std::uint32_t sought, const Run& run) { return sought < run.place; });
    WEFT_DCHECK(next != runs_.begin());
    return next[-1].index + (place - next[-1].place);
}

std::shared_ptr<const HostOrder> RankOrder::order_of(const HostOrder& all) const {
    std::vector<std::uint32_t> chosen;
    chosen.reserve(all_.last);
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        const std::uint32_t end = i + 1 < runs_.size() ? runs_[i + 1].place : all_.last;
        for (std::uint32_t place = runs_[i].place; place < end; ++place) {
            chosen.push_back(runs_[i].index + (place - runs_[i].place));
        }
    }
    return std::make_shared<HostOrder>(all, chosen);
}

const Member& RankOrder::at(std::uint32_t position) const {
    WEFT_ASSERT(view_);
    WEFT_DCHECK(position < all_.last);
    if (order_) return view_->at(order_->at(position, rotation_));
    return view_->at(index_at(rank_at(position, root_, all_.last)));
}

const Member& RankOrder::at(std::uint32_t position, Member& scratch) const {
    if (view_) return at(position);
    WEFT_ASSERT(all_.contains(position));
    return scratch = named_.at(position - all_.first);
}

}  // namespace weft::coll
