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

static Status judge(const ForwardHeader& header) {
    if (header.first >= header.last || header.last > GroupView::members_max) return bad("subtree");
    if (!header.tree.is_possible({header.first + 1, header.last})) return bad("tree");
    if (header.unsettled > header.identity.sequence) return bad("number");
    if (header.asker > GroupView::members_max) return bad("asker");
    if (header.asking > Asking::clock || header.priority() > ForwardHeader::priority_most) {
        return bad("question");
    }
    if (header.method == forward_method.hash) {
        return fail(Code::invalid_argument, "a collective of collectives");
    }
    return judge(Reduction{static_cast<Reduction::Operation>(header.operation),
                           static_cast<Reduction::Number>(header.number), false});
}

Result<ForwardView> decode_forward(ByteView bytes) {
    base::Reader in(bytes);
    ForwardView view;
    view.header = in.take<ForwardHeader>();
    if (!in.ok()) return fail(Code::invalid_argument, "a collective shorter than its header");
    if (Status status = judge(view.header); !status.ok()) return status;
    const std::size_t ranges_most =
        std::min(GroupView::members_max, in.left() / sizeof(RankSet::Range));
    if (view.header.ranges > ranges_most) return bad("choice of ranks");
    view.ranges = in.take_bytes(view.header.ranges * sizeof(RankSet::Range));
    view.named = in.take_bytes(view.header.named);
    if (!in.ok()) return bad("list of members");
    view.body = in.take_bytes(in.left());
    return view;
}

Result<std::vector<RankSet::Range>> decode_ranges(ByteView bytes) {
    std::vector<RankSet::Range> ranges(bytes.size() / sizeof(RankSet::Range));
    base::Reader in(bytes);
    std::uint64_t next = 0;  // Neither touching nor out of order.
    for (RankSet::Range& range : ranges) {
        range = in.take<RankSet::Range>();
        if (range.first < next || range.last < range.first) return bad("choice of ranks");
        next = std::uint64_t{range.last} + 2;
    }
    return ranges;
}

// ---- bodies for each ---------------------------------------------------------------------------

static std::uint32_t length_at(ByteView pieces, std::uint32_t at) {
    return base::load<std::uint32_t>(pieces.data() + std::size_t{at} * sizeof(std::uint32_t));
}

// Where the bytes of one begin, of `count`.
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

// ---- answers -----------------------------------------------------------------------------------

// kind u8, has a value u8, 0 u16, count of intervals u32, epoch u64, cost (2 u32); the intervals (2
// u32 each); a value (u32 + bytes); then outcomes: position u32, code u8, effect u8, stage u8, 0
// u8, text (u16 + bytes), peer (u16 + bytes), reply (u32 + bytes).
static constexpr std::size_t answer_bytes = 24;
static constexpr std::size_t outcome_bytes = 4 + 4 + 2 + 2 + 4;
static constexpr std::size_t text_bytes_max = 256;

static std::size_t bytes_of(const Outcome& outcome) {
    return outcome_bytes + base::cut_text(outcome.status.text(), text_bytes_max).size() +
           std::min(outcome.status.peer().size(), text_bytes_max) + outcome.reply.size();
}

std::size_t bytes_of(const Answer& answer) {
    std::size_t total = answer_bytes + answer.ok.size() * sizeof(Interval);
    if (answer.has_value) total += 4 + answer.value.size();
    for (const Outcome& outcome : answer.outcomes) total += bytes_of(outcome);
    return total;
}

static Status too_large(std::size_t bytes) {
    return fail(Code::resource_exhausted, "the reply of " + std::to_string(bytes) +
                                              " bytes did not fit into the collective's")
        .with_effect(Effect::applied)
        .with_stage(Stage::executing);
}

// Of those who are in a value that is too large none has succeeded.
static void shrink_value(Answer& answer) {
    const Status why = too_large(answer.value.size());
    for (const Interval& one : std::exchange(answer.ok, {})) {
        for (std::uint32_t at = one.first; at < one.last; ++at) {
            answer.outcomes.push_back({at, why, {}});
        }
    }
    answer.has_value = false;
    answer.value = {};
}

// The largest first, until the others fit. Returns what it then takes.
static std::size_t drop_large_replies(Answer& answer, std::size_t total, std::size_t bytes_max) {
    if (total <= bytes_max) return total;
    std::vector<Outcome*> large;
    for (Outcome& outcome : answer.outcomes) {
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

static void shrink(Answer& answer, std::size_t bytes_max) {
    std::size_t total = bytes_of(answer);
    if (total <= bytes_max) return;
    if (answer.has_value && answer.value.size() > text_bytes_max) {
        shrink_value(answer);
        total = bytes_of(answer);
    }
    total = drop_large_replies(answer, total, bytes_max);
    if (total <= bytes_max) return;
    for (Outcome& outcome : answer.outcomes) {
        const bool lost = !outcome.reply.empty();
        outcome.status = Status(lost ? Code::resource_exhausted : outcome.status.code(), "")
                             .with_effect(outcome.status.effect())
                             .with_stage(outcome.status.stage());
        outcome.reply = {};
    }
}

std::vector<std::byte> encode_answer(Answer answer, std::size_t bytes_max) {
    shrink(answer, bytes_max);
    std::vector<std::byte> bytes(bytes_of(answer));
    base::Writer out(bytes);
    out.put(answer.kind);
    out.put(static_cast<std::uint8_t>(answer.has_value));
    out.put(std::uint16_t{0});
    out.put(static_cast<std::uint32_t>(answer.ok.size()));
    out.put(answer.kind == Answer::Kind::stale ? answer.epoch : answer.clock);
    out.put(answer.cost);
    for (const Interval& one : answer.ok) out.put(one);
    if (answer.has_value) {
        out.put(static_cast<std::uint32_t>(answer.value.size()));
        out.put_bytes(answer.value);
    }
    for (const Outcome& outcome : answer.outcomes) {
        out.put(outcome.position);
        out.put(static_cast<std::uint8_t>(outcome.status.code()));
        out.put(static_cast<std::uint8_t>(outcome.status.effect()));
        out.put(static_cast<std::uint8_t>(outcome.status.stage()));
        out.put(std::uint8_t{0});
        out.put_text(base::cut_text(outcome.status.text(), text_bytes_max));
        out.put_text(outcome.status.peer().substr(0, text_bytes_max));
        out.put(static_cast<std::uint32_t>(outcome.reply.size()));
        out.put_bytes(outcome.reply);
    }
    return bytes;
}

static Status malformed() { return fail(Code::data_loss, "a malformed answer to a collective"); }

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

Result<Answer> decode_answer(ByteView bytes, std::size_t positions) {
    base::Reader in(bytes);
    Answer answer;
    answer.kind = in.take<Answer::Kind>();
    const auto has_value = in.take<std::uint8_t>();
    in.take<std::uint16_t>();
    const auto intervals = in.take<std::uint32_t>();
    (answer.kind == Answer::Kind::stale ? answer.epoch : answer.clock) = in.take<std::uint64_t>();
    answer.cost = in.take<Cost>();
    if (!in.ok() || answer.kind > Answer::Kind::late || has_value > 1 ||
        intervals > std::min(positions, in.left() / sizeof(Interval))) {
        return malformed();
    }
    answer.ok.resize(intervals);
    std::uint64_t next = 0;
    for (Interval& one : answer.ok) {
        one = in.take<Interval>();
        if (one.first < next || one.last <= one.first) return malformed();
        next = std::uint64_t{one.last};
    }
    answer.has_value = has_value != 0;
    if (answer.has_value) {
        const ByteView value = in.take_bytes(in.take<std::uint32_t>());
        if (!in.ok()) return malformed();
        answer.value.assign(value.begin(), value.end());
    }
    while (in.left() > 0) {
        Result<Outcome> outcome = take_outcome(in);
        if (!outcome) return std::move(outcome).status();
        if (answer.outcomes.size() == positions) return malformed();
        answer.outcomes.push_back(*std::move(outcome));
    }
    return answer;
}

}  // namespace weft::coll
