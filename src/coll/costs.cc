#include "coll/costs.h"

#include <algorithm>
#include <bit>

namespace weft::coll {

std::size_t Costs::class_of(std::size_t bytes) {
    const std::size_t magnitude = std::bit_width(bytes == 0 ? 0 : bytes - 1);  // 64: 6.
    return magnitude <= 6 ? 0 : std::min((magnitude - 4) / 3, classes - 1);
}

void Costs::note(std::size_t bytes, std::uint32_t members, Duration first, Duration last) {
    Cost& cost = costs_[class_of(bytes)];
    const double busy = static_cast<double>((last - first).count()) / (members - 1);
    const auto trip = static_cast<double>(first.count());
    // The first ones count as much as one another.
    const double share = std::max(weight, 1.0 / ++cost.samples);
    cost.busy_ns += share * (busy - cost.busy_ns);
    cost.trip_ns += share * (trip - cost.trip_ns);
}

// In powers of two: plans of trees are kept, and nearly the same one is as good.
Tree Costs::tree(std::uint32_t ranks, std::size_t bytes) const {
    if (ranks <= few) {
        Tree flat;
        flat.shape = Shape::flat;
        return flat;
    }
    const std::size_t size = class_of(bytes);
    const Cost& cost = costs_[size];
    if (cost.samples == 0) return size >= large_class ? tree_for(1, 1) : Tree{};
    Tree tree = tree_for(std::max(cost.busy_ns, 1.0), cost.trip_ns);
    tree.latency = std::bit_floor(tree.latency);
    return tree;
}

}  // namespace weft::coll
