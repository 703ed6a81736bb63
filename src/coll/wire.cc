#include "coll/wire.h"

#include <algorithm>

#include "base/codec.h"
#include "base/text.h"

namespace weft::coll {

// ---- requests ----------------------------------------------------------------------------------

void encode_forward(const ForwardParts& parts, Bytes to) {
    ForwardHeader header = parts.header;
    header.ranges = static_cast<std::uint32_t>(parts.ranges.size());
    header.named = static_cast<std::uint32_t>(parts.named.size());
    base::Writer out(to);
    out.put(header);
    out.put_bytes(std::as_bytes(parts.ranges));
    out.put_bytes(parts.named);
    out.put_bytes(parts.body);
}

static Status bad(const char* what) {
    return fail(Code::invalid_argument, std::string("a collective with an impossible ") + what);
}

static Status validate(const ForwardHeader& header) {
    if (header.first >= header.last || header.last > GroupView::members_max) return bad("subtree");
    if (!header.tree.is_possible({header.first + 1, header.last})) return bad("tree");
    if (header.unacknowledged > header.key.sequence) return bad("number");
    if (header.parent > GroupView::members_max) return bad("parent");
    if (header.kind > RequestKind::clock || header.priority() > ForwardHeader::priority_max) {
        return bad("request kind or priority");
    }
    if (header.method == forward_method.hash) {
        return fail(Code::invalid_argument, "a collective of collectives");
    }
    return validate(Reduction{static_cast<Reduction::Operation>(header.operation),
                              static_cast<Reduction::Number>(header.number), false});
}

Result<ForwardView> decode_forward(ByteView bytes) {
    base::Reader in(bytes);
    ForwardView view;
    view.header = in.take<ForwardHeader>();
    if (!in.ok()) return fail(Code::invalid_argument, "a collective shorter than its header");
    if (Status status = validate(view.header); !status.ok()) return status;
    const std::size_t ranges_most =
        std::min(GroupView::members_max, in.remaining() / sizeof(RankSet::Range));
    if (view.header.ranges > ranges_most) return bad("choice of ranks");
    view.ranges = in.take_bytes(view.header.ranges * sizeof(RankSet::Range));
    view.named = in.take_bytes(view.header.named);
    if (!in.ok()) return bad("list of members");
    view.body = in.take_bytes(in.remaining());
    return view;
}

Result<std::vector<RankSet::Range>> decode_ranges(ByteView bytes) {
    std::vector<RankSet::Range> ranges(bytes.size() / sizeof(RankSet::Range));
    base::Reader in(bytes);
    std::uint64_t next = 0;  // In order, and not touching.
    for (RankSet::Range& range : ranges) {
        range = in.take<RankSet::Range>();
        if (range.first < next || range.last < range.first) return bad("choice of ranks");
        next = std::uint64_t{range.last} + 2;
    }
    return ranges;
}

// ---- bodies of a scatter -----------------------------------------------------------------------

static std::uint32_t length_at(ByteView pieces, std::uint32_t at) {
    return base::load<std::uint32_t>(pieces.data() + std::size_t{at} * sizeof(std::uint32_t));
}

// Where the bytes of piece `at` of `count` begin.
static std::size_t offset_of(ByteView pieces, std::uint32_t count, std::uint32_t at) {
    std::size_t offset = std::size_t{count} * sizeof(std::uint32_t);
    for (std::uint32_t i = 0; i < at; ++i) offset += length_at(pieces, i);
    return offset;
}

Result<ByteView> piece_of(ByteView pieces, std::uint32_t count, std::uint32_t at) {
    if (pieces.size() / sizeof(std::uint32_t) < count ||
        offset_of(pieces, count, count) != pieces.size()) {
        return bad("set of bodies");
    }
    return pieces.subspan(offset_of(pieces, count, at), length_at(pieces, at));
}

PieceReader::PieceReader(ByteView pieces, std::uint32_t count)
    : lengths_(pieces.first(std::size_t{count} * sizeof(std::uint32_t))),
      bytes_(pieces.subspan(lengths_.size())) {}

ByteView PieceReader::next() {
    const ByteView piece = bytes_.first(length_at(lengths_, 0));
    lengths_ = lengths_.subspan(sizeof(std::uint32_t));
    bytes_ = bytes_.subspan(piece.size());
    return piece;
}

void append_pieces(std::vector<std::byte>& to, ByteView pieces, Interval all, Interval of) {
    const std::uint32_t begin = of.first - all.first;
    const std::uint32_t end = of.last - all.first;
    const ByteView lengths = pieces.subspan(begin * sizeof(std::uint32_t),
                                            std::size_t{of.size()} * sizeof(std::uint32_t));
    const std::size_t first = offset_of(pieces, all.size(), begin);
    const ByteView bytes = pieces.subspan(first, offset_of(pieces, all.size(), end) - first);
    to.insert(to.end(), lengths.begin(), lengths.end());
    to.insert(to.end(), bytes.begin(), bytes.end());
}

// ---- replies -----------------------------------------------------------------------------------

// kind u8, has a value u8, 0 u16, count of intervals u32, epoch u64, cost (2 u32); the intervals (2
// u32 each); a value (u32 + bytes); then outcomes: position u32, code u8, effect u8, stage u8, 0
// u8, text (u16 + bytes), peer (u16 + bytes), reply (u32 + bytes).
static constexpr std::size_t subtree_reply_bytes = 24;
static constexpr std::size_t outcome_bytes = 4 + 4 + 2 + 2 + 4;
static constexpr std::size_t text_bytes_max = 256;

static std::size_t bytes_of(const Outcome& outcome) {
    return outcome_bytes + base::truncate_utf8(outcome.status.text(), text_bytes_max).size() +
           std::min(outcome.status.peer().size(), text_bytes_max) + outcome.reply.size();
}

std::size_t bytes_of(const SubtreeReply& reply) {
    std::size_t total = subtree_reply_bytes + reply.ok.size() * sizeof(Interval);
    if (reply.has_value) total += 4 + reply.value.size();
    for (const Outcome& outcome : reply.outcomes) total += bytes_of(outcome);
    return total;
}

static Status too_large(std::size_t bytes) {
    return fail(Code::resource_exhausted, "the reply of " + std::to_string(bytes) +
                                              " bytes did not fit into the collective's reply")
        .with_effect(Effect::applied)
        .with_stage(Stage::executing);
}

// A value that is too large fails all ranks in it.
static void shrink_value(SubtreeReply& reply) {
    const Status why = too_large(reply.value.size());
    for (const Interval& one : std::exchange(reply.ok, {})) {
        for (std::uint32_t at = one.first; at < one.last; ++at) {
            reply.outcomes.push_back({at, why, {}});
        }
    }
    reply.has_value = false;
    reply.value = {};
}

// Drops the largest replies first, until the others fit. Returns the size that remains.
static std::size_t drop_large_replies(SubtreeReply& reply, std::size_t total,
                                      std::size_t bytes_max) {
    if (total <= bytes_max) return total;
    std::vector<Outcome*> large;
    for (Outcome& outcome : reply.outcomes) {
        if (outcome.reply.size() > text_bytes_max) large.push_back(&outcome);
    }
    std::stable_sort(large.begin(), large.end(), [](const Outcome* a, const Outcome* b) {
        return a->reply.size() > b->reply.size();
    });
    for (auto next = large.begin(); total > bytes_max && next != large.end(); ++next) {
        Outcome& outcome = **next;
        total -= bytes_of(outcome);
        outcome.status = too_large(outcome.reply.size());
        outcome.reply = {};
        total += bytes_of(outcome);
    }
    return total;
}

static void shrink(SubtreeReply& reply, std::size_t bytes_max) {
    std::size_t total = bytes_of(reply);
    if (total <= bytes_max) return;
    if (reply.has_value && reply.value.size() > text_bytes_max) {
        shrink_value(reply);
        total = bytes_of(reply);
    }
    total = drop_large_replies(reply, total, bytes_max);
    if (total <= bytes_max) return;
    for (Outcome& outcome : reply.outcomes) {
        const bool lost = !outcome.reply.empty();
        outcome.status = Status(lost ? Code::resource_exhausted : outcome.status.code(), "")
                             .with_effect(outcome.status.effect())
                             .with_stage(outcome.status.stage());
        outcome.reply = {};
    }
}

std::vector<std::byte> encode_subtree_reply(SubtreeReply reply, std::size_t bytes_max) {
    shrink(reply, bytes_max);
    std::vector<std::byte> bytes(bytes_of(reply));
    base::Writer out(bytes);
    out.put(reply.kind);
    out.put(static_cast<std::uint8_t>(reply.has_value));
    out.put(std::uint16_t{0});
    out.put(static_cast<std::uint32_t>(reply.ok.size()));
    out.put(reply.kind == SubtreeReply::Kind::stale ? reply.epoch : reply.clock);
    out.put(reply.cost);
    for (const Interval& one : reply.ok) out.put(one);
    if (reply.has_value) {
        out.put(static_cast<std::uint32_t>(reply.value.size()));
        out.put_bytes(reply.value);
    }
    for (const Outcome& outcome : reply.outcomes) {
        out.put(outcome.position);
        out.put(static_cast<std::uint8_t>(outcome.status.code()));
        out.put(static_cast<std::uint8_t>(outcome.status.effect()));
        out.put(static_cast<std::uint8_t>(outcome.status.stage()));
        out.put(std::uint8_t{0});
        out.put_text(base::truncate_utf8(outcome.status.text(), text_bytes_max));
        out.put_text(outcome.status.peer().substr(0, text_bytes_max));
        out.put(static_cast<std::uint32_t>(outcome.reply.size()));
        out.put_bytes(outcome.reply);
    }
    return bytes;
}

static Status malformed() { return fail(Code::data_loss, "a malformed reply to a collective"); }

static Result<Outcome> take_outcome(base::Reader& in) {
    Outcome outcome;
    outcome.position = in.take<std::uint32_t>();
    const auto code = in.take<std::uint8_t>();
    const auto effect = in.take<std::uint8_t>();
    const auto stage = in.take<std::uint8_t>();
    in.take<std::uint8_t>();
    const std::string_view text = in.take_text();
    const std::string_view peer = in.take_text();
    const ByteView reply = in.take_bytes(in.take<std::uint32_t>());
    if (!in.ok() || code > code_max || effect > 2 || stage > 4) return malformed();
    Status status =
        code == 0 && text.empty() ? Status() : Status(static_cast<Code>(code), std::string(text));
    outcome.status = std::move(status)
                         .with_effect(static_cast<Effect>(effect))
                         .with_stage(static_cast<Stage>(stage));
    if (!peer.empty()) outcome.status = std::move(outcome.status).with_peer(peer);
    outcome.reply.assign(reply.begin(), reply.end());
    return outcome;
}

Result<SubtreeReply> decode_subtree_reply(ByteView bytes, std::size_t positions) {
    base::Reader in(bytes);
    SubtreeReply reply;
    reply.kind = in.take<SubtreeReply::Kind>();
    const auto has_value = in.take<std::uint8_t>();
    in.take<std::uint16_t>();
    const auto intervals = in.take<std::uint32_t>();
    (reply.kind == SubtreeReply::Kind::stale ? reply.epoch : reply.clock) =
        in.take<std::uint64_t>();
    reply.cost = in.take<Cost>();
    if (!in.ok() || reply.kind > SubtreeReply::Kind::expired || has_value > 1 ||
        intervals > std::min(positions, in.remaining() / sizeof(Interval))) {
        return malformed();
    }
    reply.ok.resize(intervals);
    std::uint64_t next = 0;
    for (Interval& one : reply.ok) {
        one = in.take<Interval>();
        if (one.first < next || one.last <= one.first) return malformed();
        next = std::uint64_t{one.last};
    }
    reply.has_value = has_value != 0;
    if (reply.has_value) {
        const ByteView value = in.take_bytes(in.take<std::uint32_t>());
        if (!in.ok()) return malformed();
        reply.value.assign(value.begin(), value.end());
    }
    while (in.remaining() > 0) {
        Result<Outcome> outcome = take_outcome(in);
        if (!outcome) return std::move(outcome).status();
        if (reply.outcomes.size() == positions) return malformed();
        reply.outcomes.push_back(*std::move(outcome));
    }
    return reply;
}

}  // namespace weft::coll
