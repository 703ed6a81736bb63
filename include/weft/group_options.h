// Options of collectives: topology, policy, reduction.
#pragma once

#include <cstdint>
#include <type_traits>
#include <vector>

#include <weft/bytes.h>
#include <weft/call_options.h>
#include <weft/rank_set.h>
#include <weft/status.h>
#include <weft/time.h>

namespace weft {

// The tree by which a collective reaches its ranks.
struct Topology {
    enum class Shape : std::uint8_t {
        automatic,  // Greedy, by the cost of a message of this size; two levels where ranks
                    // share hosts.
        flat,       // The root sends to all ranks: at most 1024.
        k_ary,
        k_nomial,
        greedy,
    };
    Shape shape = Shape::automatic;
    // From 2 to 64. k_ary, k_nomial: k. greedy: the most children of a rank.
    std::uint8_t fanout = 16;
    // The first rank of each host forwards to the other ranks of that host. Addresses distinguish
    // hosts. Without effect on a reduction in order of rank.
    bool by_host = false;
};

// When a collective succeeds.
enum class Policy : std::uint8_t {
    all,          // Every rank succeeded.
    quorum,       // The quorum of ranks succeeded; completes as soon as it has.
    best_effort,  // Always, with the ranks that were reached.
};

// A policy, or none. With none, the method's own from its .proto applies, else `all`.
class PolicyChoice {
  public:
    constexpr PolicyChoice() = default;
    constexpr PolicyChoice(Policy policy) : policy_(policy), is_made_(true) {}
    constexpr operator Policy() const { return policy_; }
    constexpr bool has_value() const { return is_made_; }

  private:
    Policy policy_ = Policy::all;
    bool is_made_ = false;
};

// Merges one reply into those merged before. Must be associative and pure: it runs at any member,
// on the context's thread. On an error it must leave `into` unchanged, and the rank of `from`
// (with all ranks merged into it) fails with its code and text, effect applied. An exception
// becomes INTERNAL.
using MergeFunction = Status (*)(std::vector<std::byte>& into, ByteView from);

// How replies are combined.
struct Reduction {
    enum class Operation : std::uint8_t {
        none,  // Not combined: the outcome lists them.
        // On arrays of numbers, element by element, little endian; all have the same length.
        sum,
        min,
        max,
        bit_and,  // Not for f64.
        bit_or,
        method,  // The method's merge function (MethodTraits::merge).
    };
    enum class Number : std::uint8_t { u64, i64, f64 };
    Operation operation = Operation::none;
    Number number = Number::u64;
    // True: merges in order of rank. False: in order of arrival.
    bool ordered = false;
};

// Per collective. As CallOptions: an aggregate for designated initialisers, trivially copyable. A
// value out of its range is refused with INVALID_ARGUMENT and without ranks.
//
// Generated clients take unset values from the .proto (options.proto): the timeout, the priority,
// the policy with its quorum, and a topology that is automatic. The .proto alone decides how
// replies are combined; of `reduction` the clients use `ordered` only.
struct GroupCallOptions {
    // Covers the whole collective. Zero: the method's own, else the runtime's default (30 s).
    // Negative: it has expired already.
    Duration timeout{};
    // As CallOptions::priority, for the collective's messages at every hop.
    std::uint8_t priority = 0;
    // As CallOptions::detached.
    bool detached = false;
    PolicyChoice policy{};
    // For Policy::quorum: at most the number of ranks that take part; 0: more than half.
    std::uint32_t quorum = 0;
    // False: a collective that completes before every rank has answered is still delivered to the
    // other ranks until its deadline, and the end of the runtime waits for that
    // (RuntimeOptions::drain_timeout). True: it is cancelled at the other ranks.
    bool abandon_rest = false;
    // The ranks that take part: those in `include`, or all that are not draining, without those in
    // `exclude`. A rank that is no member is a failure of its own (NOT_FOUND). The sets must live
    // until the function that starts the collective returns.
    const RankSet* include = nullptr;
    const RankSet* exclude = nullptr;
    Topology topology{};
    Reduction reduction{};
    // For Operation::method, for callers that are no members and have only the method's name.
    MergeFunction merge = nullptr;
};
static_assert(std::is_trivially_copyable_v<GroupCallOptions>);

}  // namespace weft
