// What a broadcast costs under the one-port LogP model, as arithmetic: the least that it can take,
// and what it takes over a given tree. Pure, and independent of src/coll but for its intervals.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include <weft/time.h>

#include "coll/interval.h"

namespace weft::tool {

// A message keeps its sender's port busy for `busy`, and its receiver may send it on `latency`
// after that; a port that receives takes one message in each `busy`, too.
struct LinkCost {
    Duration busy;
    Duration latency;
};

struct BroadcastTime {
    Duration told{};          // Until the last rank has the message.
    Duration acknowledged{};  // Until the root knows so: each rank answers for its whole subtree.
};

// The least time in which the last of n ranks can be told: each rank that has the message sends it
// to another one whenever its port is free. No cap on how many it tells.
// Source: Karp, Sahay, Santos, Schauser (Optimal Broadcast and Summation in the LogP Model, 1993).
Duration least_time(std::uint32_t n, const LinkCost& cost);

// The subtrees below the node that stands in front of `below`, in the order in which it sends.
using Children = std::function<std::vector<coll::Interval>(coll::Interval below)>;

// Of n ranks; nothing but messages takes time.
BroadcastTime time_of(std::uint32_t n, const LinkCost& cost, const Children& children);

// The children of a k-nomial tree in the order in which CaRT (of DAOS) sends to them: by rank,
// which is the smallest subtree first.
std::vector<coll::Interval> cart_children(coll::Interval below, std::uint32_t ratio);

}  // namespace weft::tool
