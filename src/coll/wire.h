// Wire form of collective calls: the body of the method weft.Collective/Forward and its reply.
// docs/wire-format.md has the tables.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include <weft/group.h>
#include <weft/result.h>

#include "coll/collective_table.h"
#include "coll/member_list.h"
#include "coll/outcomes.h"
#include "coll/peer_clock.h"
#include "coll/tree.h"

namespace weft::coll {

inline constexpr MethodId forward_method("weft.Collective/Forward");
inline constexpr MethodId view_method("weft.Group/View");

// The kind of a call of forward_method.
enum class RequestKind : std::uint8_t {
    all,        // Take part, and reply for the subtree.
    resume,     // The missing outcomes of the subtree: without a body.
    self_only,  // The receiver's own outcome: without a body.
    cancel,     // The parent does not wait any more: without a body.
    clock,      // The receiver's clock: without a body.
};

// Which ranks run which method, and the receiver's responsibility: itself and its subtree.
struct ForwardHeader {
    static constexpr std::uint8_t scatters = 1;  // A body for each position.
    static constexpr std::uint8_t by_host = 2;   // The tree has two levels.
    static constexpr std::uint8_t ordered = 4;   // Merged in order of position.
    static constexpr std::uint8_t plan_flags_all = 7;
    static constexpr unsigned priority_shift = 3;  // Above the flags.
    static constexpr std::uint8_t priority_max = 7;

    // ---- which collective
    std::uint64_t view = 0;   // Digest of the origin's view.
    std::uint64_t group = 0;  // method_hash of the group's name.
    std::uint64_t epoch = 0;
    CollectiveKey key;
    std::uint64_t method = 0;  // method_hash of the method that each rank runs.
    Ticks began = 0;           // By the receiver's clock, or earlier; used for `all` only.
    std::uint64_t time_limit_ns = UINT64_MAX;  // From `began` on; UINT64_MAX: no end.
    // The number of this collective minus that of the origin's first unacknowledged one.
    std::uint16_t unacknowledged = 0;
    // The client of the sender that it comes from: any number, the same for all of that client's.
    // 0: the sender itself. Used only if a rank is the sender.
    std::uint16_t client = 0;

    // ---- the receiver's place in the tree
    std::uint32_t parent = 0;  // The sender's position plus 1; 0: outside of the group.
    std::uint32_t root = 0;    // The place of position 0 among those that take part.
    std::uint32_t first = 0;   // Positions [first, last): the receiver is `first`.
    std::uint32_t last = 0;
    Tree tree;

    // ---- what the receiver does
    // Replies within this, at least partially.
    std::uint32_t progress_interval_us = 0;
    RequestKind kind = RequestKind::all;
    std::uint8_t flags = 0;      // And the priority.
    std::uint8_t operation = 0;  // Reduction::Operation
    std::uint8_t number = 0;     // Reduction::Number
    std::uint32_t ranges = 0;    // How many ranges of ranks follow; 0: all take part.
    // Bytes of the member list that follows; 0: members by view.
    std::uint32_t named = 0;

    std::uint64_t acknowledged_below() const { return key.sequence - unacknowledged; }
    Interval subtree() const { return {first, last}; }
    // A time limit beyond the longest deadline on the wire means no end.
    Duration time_limit() const {
        return time_limit_ns > std::uint64_t{Duration(2h).count()}
                   ? Duration::max()
                   : Duration(static_cast<std::int64_t>(time_limit_ns));
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
// Errors: INVALID_ARGUMENT: an impossible interval, tree, reduction or number, too short, a
// collective of collectives.
// Cost: that of the header; the counted parts are not read.
Result<ForwardView> decode_forward(ByteView bytes);
// Errors: INVALID_ARGUMENT: ranges that are out of order, or touch.
Result<std::vector<RankSet::Range>> decode_ranges(ByteView bytes);

std::size_t bytes_of(const SubtreeReply& reply);
// If it exceeds `bytes_max`, replies are dropped first (the rank then reports RESOURCE_EXHAUSTED,
// applied), then texts.
std::vector<std::byte> encode_subtree_reply(SubtreeReply reply, std::size_t bytes_max);
// For a subtree of that many positions. Errors: DATA_LOSS: also for more outcomes than that.
Result<SubtreeReply> decode_subtree_reply(ByteView bytes,
                                          std::size_t positions = GroupView::members_max);

// One body for each of some positions: a length each (u32), then the bytes of all.
// Errors: INVALID_ARGUMENT: not for that many.
Result<ByteView> piece_of(ByteView pieces, std::uint32_t count, std::uint32_t at);
// Reads the pieces in order. Requires: piece_of() returns no error.
class PieceReader {
  public:
    PieceReader(ByteView pieces, std::uint32_t count);
    ByteView next();

  private:
    ByteView lengths_;
    ByteView bytes_;
};
// Appends the pieces of `of` from those of `all`, which contains it. Requires: piece_of() returns
// no error.
void append_pieces(std::vector<std::byte>& to, ByteView pieces, Interval all, Interval of);

}  // namespace weft::coll
