// The k-nomial tree as arithmetic: pure, no state, the same on every rank.
//
// Positions 0..n-1 are ranks rotated so that the root is position 0. A subtree is an interval
// [first, last) of positions whose node is `first`; split() cuts what is below the node into the
// subtrees of its children, largest first, so that the child with the longest way to go starts
// first (with the leaves first it would start last, at about twice the total time). Every interval
// of a k-nomial tree is contiguous, so a message names its receiver's whole subtree with two
// numbers.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::coll {

struct Interval {
    std::uint32_t first = 0;
    std::uint32_t last = 0;  // One past.
    std::uint32_t size() const { return last - first; }
    friend bool operator==(const Interval&, const Interval&) = default;
};

inline constexpr std::uint32_t fanout_min = 2;
inline constexpr std::uint32_t fanout_max = 64;
inline constexpr std::uint32_t fanout_default = 4;

// The children's subtrees of the node that stands in front of `below`: its own interval is
// [below.first - 1, below.last). Requires: fanout_min <= fanout <= fanout_max.
// Source: k-nomial trees as in MPICH's MPI_Bcast (Thakur, Rabenseifner, Gropp 2005), generalised
// from binomial.
std::vector<Interval> split(Interval below, std::uint32_t fanout);

// The rank at a position when `root` is position 0 of `n`.
constexpr std::uint32_t rank_at(std::uint32_t position, std::uint32_t root, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{position} + root) % n);
}

}  // namespace weft::coll
