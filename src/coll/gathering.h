// The state of one collective at one node: which outcomes are known, pure and without I/O.
//
// Every position of the node's interval gets exactly one outcome: its own from the handler, a
// child's subtree from the child's reply, or, when the child failed, a verdict for each rank below.
#pragma once

#include <vector>

#include <weft/group.h>

#include "coll/tree.h"

namespace weft::coll {

class Gathering {
  public:
    // Collects for positions [interval.first, interval.last) of a group of n with this root.
    Gathering(Interval interval, std::uint32_t root, std::uint32_t n);

    // The outcome of one rank. A second one, or one of a rank outside, is refused: false.
    bool set(RankOutcome outcome);
    // What a child's reply said about its subtree; ranks it leaves out become INTERNAL.
    void set_subtree(Interval child, std::vector<RankOutcome> outcomes);
    // The call to the child failed: the child gets the status, and each rank below it UNAVAILABLE
    // (DEADLINE_EXCEEDED, FAILED_PRECONDITION, INVALID_ARGUMENT and CANCELLED keep their code),
    // naming the child; effect none where nothing was sent, else unknown.
    void fail_subtree(Interval child, const Status& status);

    bool complete() const { return missing_ == 0; }
    // By position. Requires: complete().
    std::vector<RankOutcome> take() { return std::move(outcomes_); }

  private:
    std::uint32_t rank_of(std::uint32_t position) const { return rank_at(position, root_, n_); }

    Interval interval_;
    std::uint32_t root_;
    std::uint32_t n_;
    std::vector<RankOutcome> outcomes_;
    std::vector<bool> known_;
    std::uint32_t missing_;
};

}  // namespace weft::coll
