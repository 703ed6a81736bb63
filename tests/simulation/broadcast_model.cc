#include "simulation/broadcast_model.h"

#include <algorithm>

namespace weft::scenarios {

Duration least_time(std::uint32_t n, const LinkCost& cost) {
    // When a message would arrive that starts as soon as its sender's port is free: a heap with the
    // earliest on top, one entry for each rank that has the message.
    const auto later = [](Duration a, Duration b) { return a > b; };
    std::vector<Duration> next{cost.busy + cost.latency};
    next.reserve(n);
    Duration last{};
    for (std::uint32_t reached = 1; reached < n; ++reached) {
        std::pop_heap(next.begin(), next.end(), later);
        last = next.back();
        next.back() = last + cost.busy;
        std::push_heap(next.begin(), next.end(), later);
        next.push_back(last + cost.busy + cost.latency);
        std::push_heap(next.begin(), next.end(), later);
    }
    return last;
}

// Both times, since the root began, for a node that gets the message at `now` and for all below it.
static BroadcastTime walk(coll::Interval below, Duration now, const LinkCost& cost,
                          const Children& children) {
    BroadcastTime time{now, now};
    if (below.size() == 0) return time;
    Duration free = now;
    std::vector<Duration> answers;
    for (const coll::Interval child : children(below)) {
        free += cost.busy;
        const BroadcastTime its =
            walk({child.first + 1, child.last}, free + cost.latency, cost, children);
        time.delivered = std::max(time.delivered, its.delivered);
        answers.push_back(its.acknowledged + cost.busy + cost.latency);
    }
    std::sort(answers.begin(), answers.end());
    for (const Duration answer : answers) {
        time.acknowledged = std::max(answer, time.acknowledged + cost.busy);
    }
    return time;
}

BroadcastTime time_of(std::uint32_t n, const LinkCost& cost, const Children& children) {
    return walk({1, n}, Duration{}, cost, children);
}

std::vector<coll::Interval> cart_children(coll::Interval below, std::uint32_t ratio) {
    std::vector<coll::Interval> children;
    const std::uint64_t self = std::uint64_t{below.first} - 1;
    // One digit after the other, in base `ratio`; a child's own subtree has the lower digits.
    for (std::uint64_t place = 1; self + place < below.last; place *= ratio) {
        for (std::uint64_t digit = 1; digit < ratio; ++digit) {
            const std::uint64_t child = self + digit * place;
            if (child >= below.last) break;
            const std::uint64_t end = std::min<std::uint64_t>(child + place, below.last);
            children.push_back(
                {static_cast<std::uint32_t>(child), static_cast<std::uint32_t>(end)});
        }
    }
    return children;
}

}  // namespace weft::scenarios
