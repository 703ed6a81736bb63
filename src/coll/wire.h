// Wire form of collective calls: the body of the method weft.Collective/Forward and its reply.
// docs/wire-format.md has the tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <weft/group.h>
#include <weft/result.h>

#include "coll/known.h"
#include "coll/member_list.h"
#include "coll/outcomes.h"
#include "coll/peer_clock.h"
#include "coll/tree.h"

namespace weft::coll {

inline constexpr MethodId forward_method("weft.Collective/Forward");

// What a call of forward_method wants.
enum class Asking : std::uint8_t {
    all,    // Take part, and tell of your subtree.
    rest,   // The same of one that takes part already: without a body.
    alone,  // Tell of yourself only: without a body.
    stop,   // Nobody waits for it any more: without a body.
    clock,  // What time is it there? Without a body.
};

// Who shall run what, and for whom the receiver is responsible: itself and its subtree.
struct ForwardHeader {
    static constexpr std::uint8_t scatters = 1;  // A body for each position.
    static constexpr std::uint8_t by_host = 2;   // The tree has two levels.
    static constexpr std::uint8_t ordered = 4;   // Merged in order of position.
    static constexpr std::uint8_t plan_flags_all = 7;
    static constexpr unsigned priority_shift = 3;  // Above the flags.
    static constexpr std::uint8_t priority_most = 7;

    std::uint64_t view = 0;   // Digest of the view of whoever began it.
    std::uint64_t group = 0;  // method_hash of its name.
    std::uint64_t epoch = 0;
    Identity identity;
    std::uint64_t method = 0;  // method_hash of what each rank runs.
    Ticks began = 0;           // On the receiver's clock, or earlier; counts for `all` only.
    std::uint64_t lasts_ns = UINT64_MAX;  // All its time; UINT64_MAX: no end.
    // This one's number minus that of the first of its origin's whose outcomes are not all there.
    std::uint16_t unsettled = 0;
    // Which client of the sender's it comes from: any number, the same for all of that client's.
    // 0: from the sender itself. Counts where a rank asks only.
    std::uint16_t client = 0;
    std::uint32_t asker = 0;  // Whose question it is: his position and 1; 0: outside of the group.
    std::uint32_t root = 0;   // Place, among those who take part, of position 0.
    std::uint32_t first = 0;  // Positions [first, last): the receiver is `first`.
    std::uint32_t last = 0;
    Tree tree;
    std::uint32_t patience_us = 0;  // The receiver tells within this what it knows then.
    Asking asking = Asking::all;
    std::uint8_t flags = 0;      // And the priority.
    std::uint8_t operation = 0;  // Reduction::Operation
    std::uint8_t number = 0;     // Reduction::Number
    std::uint32_t ranges = 0;    // Of ranks that take part, which follow; 0: all.
    std::uint32_t named =
        0;  // Bytes that name the members of the subtree, which follow; 0: by view.

    std::uint64_t settled() const { return identity.sequence - unsettled; }
    Interval subtree() const { return {first, last}; }
    // What lasts longer than a deadline on the wire can be has no end.
    Duration lasts() const {
        return lasts_ns > std::uint64_t{Duration(2h).count()}
                   ? Duration::max()
                   : Duration(static_cast<std::int64_t>(lasts_ns));
    }
    bool has(std::uint8_t flag) const { return (flags & flag) != 0; }
    std::uint8_t plan_flags() const { return flags & plan_flags_all; }
    std::uint8_t priority() const { return flags >> priority_shift; }
};
static_assert(sizeof(ForwardHeader) == 104);

struct ForwardView {
    ForwardHeader header;
    ByteView ranges;  // decode_ranges()
    ByteView named;   // decode_members()
    ByteView body;
};

struct ForwardParts {
    ForwardHeader header;
    std::span<const RankSet::Range> ranges;
    ByteView named;
    ByteView body;
    std::size_t bytes() const {
        return sizeof header + ranges.size_bytes() + named.size() + body.size();
    }
};
// Fills in the header's `ranges` and `named`. Requires: to.size() == parts.bytes().
void encode_forward(const ForwardParts& parts, Bytes to);
// Errors: INVALID_ARGUMENT: an interval, tree, reduction or number that can't be, too short, a
// collective inside.
// Cost: that of the header; what it counts is not read.
Result<ForwardView> decode_forward(ByteView bytes);
// Errors: INVALID_ARGUMENT: not in order, or some that touch.
Result<std::vector<RankSet::Range>> decode_ranges(ByteView bytes);

std::size_t bytes_of(const Answer& answer);
// What does not fit into `bytes_max` loses first its replies (the rank then reports
// RESOURCE_EXHAUSTED, applied), then its texts.
std::vector<std::byte> encode_answer(Answer answer, std::size_t bytes_max);
// Of a subtree of so many positions. Errors: DATA_LOSS: also of more outcomes than that.
Result<Answer> decode_answer(ByteView bytes, std::size_t positions = GroupView::members_max);

// A body for each of some positions: a length each (u32), then the bytes of all.
// Errors: INVALID_ARGUMENT: it is not for so many.
Result<ByteView> piece_of(ByteView pieces, std::uint32_t count, std::uint32_t at);
// Reads them one after the other. Requires: piece_of() is no error.
class PieceReader {
  public:
    PieceReader(ByteView pieces, std::uint32_t count);
    ByteView next();

  private:
    ByteView lengths_;
    ByteView bytes_;
};
// Those of `of` out of those of `all`, which holds it; appended. Requires: piece_of() is no error.
void append_pieces(std::vector<std::byte>& to, ByteView pieces, Interval all, Interval of);

}  // namespace weft::coll
