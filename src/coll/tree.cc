#include "coll/tree.h"

#include <algorithm>
#include <cmath>

#include "base/assert.h"

namespace weft::coll {

namespace {

constexpr std::size_t busy = 4;  // Units of time that a message takes at its sender: Tree::latency.

std::vector<Interval> flat(Interval below) {
    WEFT_DCHECK(below.size() > 0);
    std::vector<Interval> children;
    children.reserve(below.size());
    for (std::uint32_t at = below.first; at < below.last; ++at) children.push_back({at, at + 1});
    return children;
}

std::vector<Interval> k_ary(Interval below, std::uint32_t fanout) {
    std::vector<Interval> children;
    std::uint32_t first = below.first;
    for (std::uint32_t left = fanout; first < below.last; --left) {
        WEFT_DCHECK(left > 0);
        const std::uint32_t size = (below.last - first + left - 1) / left;
        children.push_back({first, first + size});
        first += size;
    }
    return children;
}

std::vector<Interval> k_nomial(Interval below, std::uint32_t fanout) {
    std::vector<Interval> children;
    WEFT_ASSERT(fanout >= fanout_min);                            // Else the loop does not end.
    const std::uint64_t total = std::uint64_t{below.size()} + 1;  // With the node itself.
    // The largest power of the fanout that leaves something above it.
    std::uint64_t span = 1;
    while (span * fanout < total) span *= fanout;
    // Children of level i stand at offsets j * k^i; each owns up to k^i positions.
    for (; span >= 1 && below.size() > 0; span /= fanout) {
        for (std::uint64_t offset = span; offset < span * fanout && offset < total;
             offset += span) {
            const auto first = static_cast<std::uint32_t>(below.first - 1 + offset);
            const auto last =
                static_cast<std::uint32_t>(below.first - 1 + std::min(offset + span, total));
            children.push_back({first, last});
        }
        if (span == 1) break;
    }
    // A cut-off subtree may be smaller than one of the next level.
    std::stable_sort(children.begin(), children.end(),
                     [](const Interval& a, const Interval& b) { return a.size() > b.size(); });
    return children;
}

// Child i starts when its parent has sent i + 1 messages and the last of them has arrived. In the
// time that is left it reaches as many ranks as the parent could in that time.
std::size_t start_of(std::size_t child, const Tree& tree) {
    return (child + 1) * busy + tree.latency;
}

std::vector<Interval> greedy(Interval below, const Tree& tree) {
    // reached[t]: the size of a subtree, with its node, t after the node got the message.
    std::vector<std::uint64_t> reached;
    const std::uint64_t wanted = std::uint64_t{below.size()} + 1;
    WEFT_ASSERT(tree.fanout > 0);
    do {
        std::uint64_t all = 1;
        const std::size_t time = reached.size();
        for (std::size_t i = 0; i < tree.fanout && start_of(i, tree) <= time; ++i) {
            all += reached[time - start_of(i, tree)];
        }
        reached.push_back(all);
    } while (reached.back() < wanted);
    std::vector<Interval> children;
    std::uint32_t first = below.first;
    for (std::size_t i = 0; first < below.last; ++i) {
        WEFT_DCHECK(start_of(i, tree) < reached.size());
        const std::uint64_t most = reached[reached.size() - 1 - start_of(i, tree)];
        const std::uint32_t size =
            static_cast<std::uint32_t>(std::min<std::uint64_t>(most, below.last - first));
        children.push_back({first, first + size});
        first += size;
    }
    return children;
}

}  // namespace

bool Tree::is_possible(Interval below) const {
    const bool has_fanout = fanout >= fanout_min && fanout <= fanout_max;
    switch (shape) {
        case Shape::flat: return below.size() <= flat_max;
        case Shape::k_ary:
        case Shape::k_nomial: return has_fanout;
        case Shape::greedy: return has_fanout && latency >= 1 && latency <= latency_max;
    }
    return false;
}

Tree tree_for(double busy_time, double latency) {
    const double quarters = busy_time > 0 ? latency / busy_time * busy : latency_max;
    Tree tree;
    tree.latency =
        static_cast<std::uint16_t>(std::lround(std::clamp<double>(quarters, 1, latency_max)));
    return tree;
}

std::vector<Interval> split(Interval below, const Tree& tree) {
    if (below.size() == 0) return {};
    switch (tree.shape) {
        case Shape::flat: return flat(below);
        case Shape::k_ary: return k_ary(below, tree.fanout);
        case Shape::k_nomial: return k_nomial(below, tree.fanout);
        case Shape::greedy: return greedy(below, tree);
    }
    return {};
}

std::uint32_t HostStarts::before(std::uint32_t position) const {
    std::uint32_t low = 0, high = size();
    while (low < high) {
        const std::uint32_t middle = low + (high - low) / 2;
        if ((*this)[middle] < position) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

std::vector<Interval> split(Interval below, const Tree& tree, const HostStarts& hosts) {
    if (hosts.empty()) return split(below, tree);
    // The first host after the node's own; an outside client has no host of its own.
    const std::uint32_t next = hosts.before(below.first);
    const std::uint32_t end = hosts.before(below.last);
    WEFT_DCHECK(next <= end && end <= hosts.size());
    const std::uint32_t behind = next == hosts.size() ? below.last : hosts[next];
    const std::uint32_t edge = std::min(std::max(behind, below.first), below.last);
    const auto host_at = [&](std::uint32_t host) { return host >= end ? below.last : hosts[host]; };
    std::vector<Interval> children = split({next, end}, tree);
    for (Interval& child : children) child = {host_at(child.first), host_at(child.last)};
    const std::vector<Interval> beside = split({below.first, edge}, tree);
    children.insert(children.end(), beside.begin(), beside.end());
    return children;
}

}  // namespace weft::coll
