// Positions of a tree, as intervals.
#pragma once

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <vector>

#include "base/assert.h"

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
    // Returns the parts that were not in the set.
    std::vector<Interval> add(Interval added) {
        WEFT_DCHECK(added.first <= added.last);
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
    // Adds another set, in one pass over both.
    void add(const IntervalSet& added) {
        if (added.all_.size() <= 1) {
            for (const Interval& one : added.all_) add(one);
            return;
        }
        std::vector<Interval> both;
        both.reserve(all_.size() + added.all_.size());
        std::merge(all_.begin(), all_.end(), added.all_.begin(), added.all_.end(),
                   std::back_inserter(both),
                   [](const Interval& a, const Interval& b) { return a.first < b.first; });
        all_.clear();
        for (const Interval& one : both) {
            if (all_.empty() || all_.back().last < one.first) {
                all_.push_back(one);
            } else {
                all_.back().last = std::max(all_.back().last, one.last);
            }
        }
    }
    // The parts that are not in the set.
    std::vector<Interval> missing(Interval of) const {
        std::vector<Interval> gaps;
        auto at = ending_after(of.first);
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
    // `of.last`: nothing is missing.
    std::uint32_t first_missing(Interval of) const {
        const auto at = ending_after(of.first);
        const bool is_in = at != all_.end() && at->first <= of.first;
        return is_in ? std::min(at->last, of.last) : of.first;
    }
    // `of.last`: no position of it is in the set.
    std::uint32_t first_known(Interval of) const {
        const auto at = ending_after(of.first);
        return at == all_.end() ? of.last : std::clamp(at->first, of.first, of.last);
    }
    bool contains(std::uint32_t position) const { return contains({position, position + 1}); }
    // Whether all of it is in the set. An empty interval is in every set.
    bool contains(Interval of) const {
        if (of.size() == 0) return true;
        const auto at = ending_after(of.first);
        return at != all_.end() && at->first <= of.first && at->last >= of.last;
    }
    const std::vector<Interval>& intervals() const { return all_; }
    std::size_t heap_bytes() const { return all_.capacity() * sizeof(Interval); }

  private:
    // The first interval that contains `position` or begins after it.
    std::vector<Interval>::const_iterator ending_after(std::uint32_t position) const {
        return std::lower_bound(
            all_.begin(), all_.end(), position,
            [](const Interval& one, std::uint32_t first) { return one.last <= first; });
    }

    std::vector<Interval> all_;
};

}  // namespace weft::coll
