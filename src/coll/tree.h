// Trees over a group as arithmetic: pure, no state, the same on every rank.
//
// Positions 0..n-1 are ranks rotated so that the root is position 0. A subtree is an interval
// [first, last) of positions with `first` as its node. split() cuts the positions below the node
// into the subtrees of its children, largest first: the child with the longest way starts first.
// With the leaves first it would start last, at about twice the total time. A message names its
// receiver's whole subtree with two numbers.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "coll/interval.h"

namespace weft::coll {

enum class Shape : std::uint8_t {
    flat,      // All are children of the root.
    k_ary,     // Equally many children for each rank, with subtrees of the same size.
    k_nomial,  // A child for each digit of each place (in base `fanout`), of the size of that
               // place.
    greedy,    // Each rank keeps sending until the last is reached, in the least time: below.
};

inline constexpr std::uint32_t fanout_min = 2;
inline constexpr std::uint32_t fanout_max = 64;
inline constexpr std::uint32_t latency_max = 256;  // Beyond it a greedy tree is as good as k_ary.
inline constexpr std::uint32_t flat_max = 1024;    // Children of a flat tree.

// The greedy tree is the optimal broadcast of Karp, Sahay, Santos and Schauser (Optimal Broadcast
// and Summation in the LogP Model, SPAA 1993): a message keeps its sender busy for g, and its
// receiver can forward it d later; each rank that has the message keeps sending it. A cap on the
// children bounds the replies that one rank waits for, and costs next to nothing (16: at most 2 %).
struct Tree {
    Shape shape = Shape::greedy;
    std::uint8_t fanout = 16;    // k_ary, k_nomial: k. greedy: children at most. flat: ignored.
    std::uint16_t latency = 20;  // greedy: d in quarters of g. Others: ignored.

    // Whether split() accepts it for the positions below a node, and takes little time.
    bool is_possible(Interval below) const;
    friend bool operator==(const Tree&, const Tree&) = default;
};
static_assert(sizeof(Tree) == 4);

// The greedy tree for messages that keep a sender busy for `busy` and can be forwarded `latency`
// later, both in one unit.
Tree tree_for(double busy, double latency);

// The subtrees of the children of the node just before `below`: its own interval is [below.first -
// 1, below.last). Requires: tree.is_possible(below).
// Source of k_nomial: MPICH's MPI_Bcast (Thakur, Rabenseifner, Gropp 2005), generalised from
// binomial.
std::vector<Interval> split(Interval below, const Tree& tree);

// The first position of each host, ascending: `starts` rotated so that the host at `first_host` is
// first, from position `first` on.
class HostStarts {
  public:
    HostStarts() = default;
    // `starts` begins with 0; `members`: the total of all hosts.
    HostStarts(std::span<const std::uint32_t> starts, std::uint32_t first_host,
               std::uint32_t members, std::uint32_t first)
        : starts_(starts), first_host_(first_host), members_(members), first_(first) {}

    std::uint32_t size() const { return static_cast<std::uint32_t>(starts_.size()); }
    bool empty() const { return starts_.empty(); }
    // Requires: host < size().
    std::uint32_t operator[](std::uint32_t host) const {
        const std::uint32_t at = first_host_ + host;
        const std::uint32_t start = at < size() ? starts_[at] : starts_[at - size()] + members_;
        return first_ + start - starts_[first_host_];
    }
    // How many hosts begin before a position.
    std::uint32_t before(std::uint32_t position) const;

  private:
    std::span<const std::uint32_t> starts_;
    std::uint32_t first_host_ = 0;
    std::uint32_t members_ = 0;
    std::uint32_t first_ = 0;
};

// The same in two levels: a tree over hosts, each reached through its first position, and below
// that position one over its others. `below` cuts no host but the node's own.
std::vector<Interval> split(Interval below, const Tree& tree, const HostStarts& hosts);

// The rank at a position when `root` is position 0 of `n`.
constexpr std::uint32_t rank_at(std::uint32_t position, std::uint32_t root, std::uint32_t n) {
    return static_cast<std::uint32_t>((std::uint64_t{position} + root) % n);
}

}  // namespace weft::coll
