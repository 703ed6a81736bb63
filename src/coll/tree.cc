#include "coll/tree.h"

#include <algorithm>

namespace weft::coll {

std::vector<Interval> split(Interval below, std::uint32_t fanout) {
    std::vector<Interval> children;
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

}  // namespace weft::coll
