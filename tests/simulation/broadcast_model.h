// The cost of a broadcast under the one-port LogP model, as arithmetic: the lower bound, and the
// cost over a given tree. Pure, and independent of src/coll but for its intervals.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <weft/time.h>

#include "coll/interval.h"

namespace weft::scenarios {

// A message keeps its sender's port busy for `busy`, and its receiver can forward it `latency`
// after that; a receiving port also takes one message in each `busy`.
struct LinkCost {
    Duration busy;
    Duration latency;
};

struct BroadcastTime {
    Duration delivered{};     // Until the last rank has the message.
    Duration acknowledged{};  // Until the root knows that: each rank replies for its whole subtree.
};

// The least time in which the last of n ranks can be reached: each rank that has the message sends
// it to another one whenever its port is free. No cap on the receivers of one rank.
// Source: Karp, Sahay, Santos, Schauser (Optimal Broadcast and Summation in the LogP Model, 1993).
Duration least_time(std::uint32_t n, const LinkCost& cost);

// The subtrees below the node just before `below`, in the order of sending.
using Children = std::function<std::vector<coll::Interval>(coll::Interval below)>;

// For n ranks; only messages take time.
BroadcastTime time_of(std::uint32_t n, const LinkCost& cost, const Children& children);

// The children of a k-nomial tree in the order in which CaRT (of DAOS) sends to them: by rank, so
// that the smallest subtree is first.
std::vector<coll::Interval> cart_children(coll::Interval below, std::uint32_t ratio);

}  // namespace weft::scenarios
