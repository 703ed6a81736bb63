// A set of ranks of a group, as ranges.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include <weft/refuse.h>

namespace weft {

// Ascending ranges that neither touch nor overlap.
class RankSet {
  public:
    // Some adjacent ranks.
    struct Range {
        std::uint32_t first = 0;
        std::uint32_t last = 0;  // Included.
        friend bool operator==(const Range&, const Range&) = default;
    };

    RankSet() = default;
    RankSet(std::initializer_list<std::uint32_t> ranks) {
        for (const std::uint32_t rank : ranks) add(rank);
    }

    void add(std::uint32_t rank) { add(rank, rank); }
    // Both ends included. Requires: first <= last; anything else aborts the program with a message.
    // Cost: low in ascending order.
    void add(std::uint32_t first, std::uint32_t last);

    bool contains(std::uint32_t rank) const;
    bool empty() const { return ranges_.empty(); }
    // The number of ranks.
    std::uint64_t size() const;
    // In order; ranges neither touch nor overlap.
    const std::vector<Range>& ranges() const { return ranges_; }

    friend bool operator==(const RankSet&, const RankSet&) = default;

  private:
    std::vector<Range> ranges_;
};

inline void RankSet::add(std::uint32_t first, std::uint32_t last) {
    if (first > last) detail::refuse_ranks("RankSet::add()", first, last);
    // The ranges from `begin` to `end` touch or overlap the new one.
    const auto ends_before = [](const Range& range, std::uint64_t rank) {  // And a gap.
        return std::uint64_t{range.last} + 1 < rank;
    };
    auto begin = ranges_.end();
    if (!ranges_.empty() && ends_before(ranges_.back(), first)) {
        ranges_.push_back({first, last});
        return;
    }
    begin = std::lower_bound(ranges_.begin(), ranges_.end(), std::uint64_t{first}, ends_before);
    auto end = begin;
    Range all{first, last};
    for (; end != ranges_.end() && end->first <= std::uint64_t{last} + 1; ++end) {
        all.first = std::min(all.first, end->first);
        all.last = std::max(all.last, end->last);
    }
    ranges_.insert(ranges_.erase(begin, end), all);
}

inline bool RankSet::contains(std::uint32_t rank) const {
    const auto at =
        std::lower_bound(ranges_.begin(), ranges_.end(), rank,
                         [](const Range& range, std::uint32_t to) { return range.last < to; });
    return at != ranges_.end() && at->first <= rank;
}

inline std::uint64_t RankSet::size() const {
    std::uint64_t all = 0;
    for (const Range& range : ranges_) all += std::uint64_t{range.last} - range.first + 1;
    return all;
}

}  // namespace weft
