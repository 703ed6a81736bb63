// Who stands where in a collective: which member has which position. Immutable, shared.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include <weft/group_view.h>
#include <weft/rank_set.h>

#include "coll/interval.h"
#include "coll/member_list.h"

namespace weft::coll {

class Roster {
  public:
    // The members of a view, turned so that the root comes first: where `ranks` are all of them
    // this is arithmetic and takes no memory. `root`: a place among those who take part, by rank.
    // By host: members of one host stand side by side, those of the root's first. Requires:
    // ranks name members only; root below how many they are.
    struct Parts {
        GroupView view;
        std::vector<RankSet::Range> ranks;  // Empty: all.
        std::uint32_t root = 0;
        bool by_host = false;
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
    // Where each host begins, by position; empty: the tree has one level.
    std::span<const std::uint32_t> hosts() const { return hosts_; }

    const std::vector<RankSet::Range>& ranks() const { return ranks_; }
    std::uint32_t root() const { return root_; }
    bool is_named() const { return !view_; }
    std::size_t heap_bytes() const {
        return (order_.capacity() + hosts_.capacity()) * sizeof(std::uint32_t) +
               ranks_.capacity() * sizeof(RankSet::Range) + named_.heap_bytes();
    }

  private:
    void order_by_host();
    void find_hosts();
    std::string_view host_at(std::uint32_t position) const;

    std::optional<GroupView> view_;
    std::vector<RankSet::Range> ranks_;
    MemberList named_;
    std::vector<std::uint32_t> order_;  // Index in the view, by position; empty: arithmetic.
    std::vector<std::uint32_t> hosts_;
    std::uint32_t root_ = 0;
    Interval all_;
};

// How many members of the view these ranks are; 0 ranges: all.
std::uint32_t members_among(const GroupView& view, std::span<const RankSet::Range> ranks);

}  // namespace weft::coll
