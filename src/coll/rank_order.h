// The order of ranks in a collective: which member has which position. Immutable, shared.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <weft/group_view.h>
#include <weft/rank_set.h>

#include "coll/host_order.h"
#include "coll/interval.h"
#include "coll/member_list.h"
#include "coll/tree.h"

namespace weft::coll {

class RankOrder {
  public:
    // The members of a view, rotated so that the root is first. `root`: a place among those that
    // take part, by rank. By host: members of one host are adjacent, those of the root's first. If
    // `ranks` are all of them this is arithmetic and takes no memory; else memory and time for each
    // range, or by host for each member: linear, in integers. Requires: ranks name members only;
    // root is below their number.
    struct Params {
        GroupView view;
        std::vector<RankSet::Range> ranks;  // Empty: all.
        std::uint32_t root = 0;
        bool by_host = false;
        std::shared_ptr<const HostOrder> hosts = nullptr;  // The view's; nullptr: it is made.
    };
    explicit RankOrder(Params params);
    // Members that a request named, in any view, at positions from `first` on.
    RankOrder(std::uint32_t first, MemberList named, std::uint32_t root, bool by_host);

    // The positions of this order.
    Interval all() const { return all_; }
    // Requires: all().contains(position), !is_named().
    const Member& at(std::uint32_t position) const;
    // Also of named members, which are put into `scratch`. Requires: all().contains(position).
    const Member& at(std::uint32_t position, Member& scratch) const;
    // As encode_members() writes them. Requires: they are in all(), is_named().
    ByteView named(Interval of) const {
        return named_.bytes(of.first - all_.first, of.last - all_.first);
    }
    // The first position of each host; empty: the tree has one level.
    HostStarts hosts() const {
        return order_ ? order_->starts(rotation_) : HostStarts(hosts_, 0, all_.size(), all_.first);
    }
    // Whether these params make the same order.
    bool matches(const Params& params) const;
    // Requires: !is_named().
    const GroupView& view() const { return *view_; }

    const std::vector<RankSet::Range>& ranks() const { return ranks_; }
    std::uint32_t root() const { return root_; }
    bool is_named() const { return !view_; }
    std::size_t heap_bytes() const {
        return hosts_.capacity() * sizeof(std::uint32_t) + runs_.capacity() * sizeof(Run) +
               ranks_.capacity() * sizeof(RankSet::Range) + named_.heap_bytes() +
               (order_ && !runs_.empty() ? order_->heap_bytes() : 0);
    }

  private:
    // Adjacent members: the place of the first among those that take part, and its index in the
    // view.
    struct Run {
        std::uint32_t place = 0;
        std::uint32_t index = 0;
    };

    std::uint32_t index_at(std::uint32_t place) const;
    std::shared_ptr<const HostOrder> order_of(const HostOrder& all) const;

    std::optional<GroupView> view_;
    std::vector<RankSet::Range> ranks_;
    std::vector<Run> runs_;  // Empty: all.
    std::shared_ptr<const HostOrder> order_;
    HostOrder::Rotation rotation_;  // Of `order_`.
    MemberList named_;
    std::vector<std::uint32_t> hosts_;  // Of `named_`.
    std::uint32_t root_ = 0;
    Interval all_;
};

// The number of members of the view among these ranks; no ranges: all.
std::uint32_t members_among(const GroupView& view, std::span<const RankSet::Range> ranks);

}  // namespace weft::coll
