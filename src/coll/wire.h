// Wire form of collective calls: the body of the method weft.Collective/Forward and its reply.
// docs/wire-format.md has the tables.
#pragma once

#include <cstdint>
#include <vector>

#include <weft/group.h>
#include <weft/result.h>

#include "coll/known.h"
#include "coll/tree.h"

namespace weft::coll {

inline constexpr MethodId forward_method("weft.Collective/Forward");

// Who shall run what, and for whom the receiver is responsible: itself and its subtree.
struct ForwardHeader {
    std::uint64_t view = 0;   // Digest of the sender's view.
    std::uint64_t epoch = 0;  // Of it, for the refusal's text.
    Identity identity;
    std::uint64_t method = 0;  // method_hash of what each rank runs.
    std::uint32_t root = 0;    // Rank at position 0.
    std::uint32_t first = 0;   // Positions [first, last): the receiver is `first`.
    std::uint32_t last = 0;
    Tree tree;
    // This one's number minus that of the first of its origin's whose outcomes are not all there.
    std::uint64_t unsettled = 0;

    std::uint64_t settled() const { return identity.sequence - unsettled; }
    // Whether it asks for the same of the same ranks.
    bool is_again(const ForwardHeader& other) const {
        return view == other.view && method == other.method && root == other.root &&
               first == other.first && last == other.last && tree == other.tree;
    }
};
static_assert(sizeof(ForwardHeader) == 64);

struct ForwardView {
    ForwardHeader header;
    ByteView body;
};

// Requires: to.size() == forward_bytes(body.size()).
constexpr std::size_t forward_bytes(std::size_t body) { return sizeof(ForwardHeader) + body; }
void encode_forward(const ForwardHeader& header, ByteView body, Bytes to);
// Errors: INVALID_ARGUMENT: an interval, tree or number that can't be, too short, a collective
// inside.
Result<ForwardView> decode_forward(ByteView bytes, std::uint32_t members);

// Outcomes, one after the other. What does not fit into `bytes_max` loses first its replies (the
// rank then reports RESOURCE_EXHAUSTED, applied), then its texts.
std::vector<std::byte> encode_outcomes(std::vector<RankOutcome> outcomes, std::size_t bytes_max);
// Errors: DATA_LOSS.
Result<std::vector<RankOutcome>> decode_outcomes(ByteView bytes);

}  // namespace weft::coll
