// Positions of a tree, as intervals of them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace weft::coll {

struct Interval {
    std::uint32_t first = 0;
    std::uint32_t last = 0;  // One past.
    std::uint32_t size() const { return last - first; }
    bool contains(std::uint32_t position) const { return position >= first && position < last; }
    friend bool operator==(const Interval&, const Interval&) = default;
};

// Some positions: sorted intervals that neither overlap nor touch. Pure.
class IntervalSet {
  public:
    // What of it was not there.
    std::vector<Interval> add(Interval added) {
        std::vector<Interval> fresh = missing(added);
        if (fresh.empty()) return fresh;
        const auto begin = std::lower_bound(
            all_.begin(), all_.end(), added.first,
            [](const Interval& one, std::uint32_t first) { return one.last < first; });
        auto end = begin;
        for (; end != all_.end() && end->first <= added.last; ++end) {
            added.first = std::min(added.first, end->first);
            added.last = std::max(added.last, end->last);
        }
        if (begin == end) {
            all_.insert(begin, added);
        } else {
            *begin = added;
            all_.erase(begin + 1, end);
        }
        return fresh;
    }
    // What of it is not there.
    std::vector<Interval> missing(Interval of) const {
        std::vector<Interval> gaps;
        auto at = std::lower_bound(
            all_.begin(), all_.end(), of.first,
            [](const Interval& one, std::uint32_t first) { return one.last <= first; });
        for (; of.first < of.last; ++at) {
            if (at == all_.end() || at->first >= of.last) {
                gaps.push_back(of);
                break;
            }
            if (at->first > of.first) gaps.push_back({of.first, at->first});
            of.first = std::max(of.first, at->last);
        }
        return gaps;
    }
    bool contains(std::uint32_t position) const { return contains({position, position + 1}); }
    // All of it. An empty interval is in every set.
    bool contains(Interval of) const {
        if (of.size() == 0) return true;
        const auto at = std::lower_bound(
            all_.begin(), all_.end(), of.first,
            [](const Interval& one, std::uint32_t first) { return one.last <= first; });
        return at != all_.end() && at->first <= of.first && at->last >= of.last;
    }
    const std::vector<Interval>& intervals() const { return all_; }
    std::size_t heap_bytes() const { return all_.capacity() * sizeof(Interval); }

  private:
    std::vector<Interval> all_;
};

}  // namespace weft::coll
