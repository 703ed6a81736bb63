// How a group is called as one.
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

// Who tells whom.
struct Topology {
    enum class Shape : std::uint8_t {
        automatic,  // Greedy, by what a message of this size costs; two levels where hosts are
                    // shared.
        flat,       // The root tells all: at most 1024.
        k_ary,
        k_nomial,
        greedy,
    };
    Shape shape = Shape::automatic;
    // From 2 to 64. k_ary, k_nomial: k. greedy: at most so many children.
    std::uint8_t fanout = 16;
    // The first rank of each host tells the others there. Hosts are told apart by the addresses.
    // Without effect on a reduction in order of rank.
    bool by_host = false;
};

// When a collective has succeeded.
enum class Policy : std::uint8_t {
    all,          // Every rank did.
    quorum,       // So many did; it completes as soon as they have.
    best_effort,  // Always, with what could be reached.
};

// A policy, or none: then it is the method's own, as its .proto has it, else `all`.
class PolicyChoice {
  public:
    constexpr PolicyChoice() = default;
    constexpr PolicyChoice(Policy policy) : policy_(policy), is_made_(true) {}
    constexpr operator Policy() const { return policy_; }
    constexpr bool is_made() const { return is_made_; }

  private:
    Policy policy_ = Policy::all;
    bool is_made_ = false;
};

// Adds one reply to those that were merged before. Associative. Pure: it runs at any member, on the
// context's thread. Errors, with `into` as it was: the rank (and all that were merged with it) then
// has this status.
using MergeFunction = Status (*)(std::vector<std::byte>& into, ByteView from);

// What becomes of the replies.
struct Reduction {
    enum class Operation : std::uint8_t {
        none,  // A list of them.
        // Of arrays of numbers, element by element, little endian; all as long as one another.
        sum,
        min,
        max,
        bit_and,  // Not of f64.
        bit_or,
        method,  // The merge function that the method has (MethodTraits::merge).
    };
    enum class Number : std::uint8_t { u64, i64, f64 };
    Operation operation = Operation::none;
    Number number = Number::u64;
    // In order of rank. Else in any: what comes first is merged first.
    bool ordered = false;
};

// Per collective. As CallOptions: an aggregate for designated initialisers, trivially copyable.
// What is out of its range is refused with INVALID_ARGUMENT and without ranks.
//
// Generated clients take what is left open from the .proto (options.proto): the timeout, the
// priority, the policy with its quorum, and a topology that is automatic. What becomes of the
// replies is said there alone; of `reduction` they look at `ordered`.
struct GroupCallOptions {
    // Covers everything. Zero: the method's own, else the runtime's default (30 s). Negative: it is
    // over.
    Duration timeout{};
    // As CallOptions::priority, of its messages at every hop.
    std::uint8_t priority = 0;
    // As CallOptions::detached.
    bool detached = false;
    PolicyChoice policy{};
    // Of Policy::quorum, at most the ranks that take part; 0: more than half.
    std::uint32_t quorum = 0;
    // One that completes before every rank has answered is delivered to the others all the same,
    // until its deadline, and the end of the runtime waits for that
    // (RuntimeOptions::drain_timeout). True: it is cancelled at these.
    bool abandon_rest = false;
    // Those who take part: of all that are not draining, or of those named here, without those
    // excluded. A rank that is no member is a failure of its own (NOT_FOUND). The sets have to live
    // until the call is made.
    const RankSet* include = nullptr;
    const RankSet* exclude = nullptr;
    Topology topology{};
    Reduction reduction{};
    // Of Operation::method, for callers that are no members and know the method by name only.
    MergeFunction merge = nullptr;
};
static_assert(std::is_trivially_copyable_v<GroupCallOptions>);

}  // namespace weft
