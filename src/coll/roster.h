// Who stands where in a collective: which member has which position. Immutable, shared.
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

class Roster {
  public:
    // The members of a view, turned so that the root comes first. `root`: a place among those that
    // take part, by rank. By host: members of one host stand side by side, those of the root's
    // first. Where `ranks` are all of them this is arithmetic and takes no memory; else memory and
    // time for each range, or by host for each member: linear, in integers. Requires: ranks name
    // members only; root below how many they are.
    struct Parts {
        GroupView view;
        std::vector<RankSet::Range> ranks;  // Empty: all.
        std::uint32_t root = 0;
        bool by_host = false;
        std::shared_ptr<const HostOrder> hosts = nullptr;  // The view's; nullptr: it is made.
    };
    explicit Roster(Parts parts);
    // Members that somebody named, whatever view he has, at positions from `first` on.
    Roster(std::uint32_t first, MemberList named, std::uint32_t root, bool by_host);

    // Positions that are known here.
    Interval all() const { return all_; }
    // Requires: all().contains(position), !is_named().
    const Member& at(std::uint32_t position) const;
    // Of any: one that is named is put into `room`. Requires: all().contains(position).
    const Member& at(std::uint32_t position, Member& room) const;
    // As encode_members() writes them. Requires: they are in all(), is_named().
    ByteView named(Interval of) const {
        return named_.bytes(of.first - all_.first, of.last - all_.first);
    }
    // Where each host begins; empty: the tree has one level.
    HostStarts hosts() const {
        return order_ ? order_->starts(turn_) : HostStarts(hosts_, 0, all_.size(), all_.first);
    }
    // Whether another one of these would be the same.
    bool is_of(const Parts& parts) const;
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
    // Members in a row: the place of the first of those that take part, and its index.
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
    HostOrder::Turn turn_;  // Of that.
    MemberList named_;
    std::vector<std::uint32_t> hosts_;  // Of those.
    std::uint32_t root_ = 0;
    Interval all_;
};

// How many members of the view these ranks are; 0 ranges: all.
std::uint32_t members_among(const GroupView& view, std::span<const RankSet::Range> ranks);

}  // namespace weft::coll
