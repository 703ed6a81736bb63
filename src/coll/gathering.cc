#include "coll/gathering.h"

#include <algorithm>

#include "base/codec.h"
#include "base/text.h"
#include "coll/wire.h"

namespace weft::coll {

namespace {

constexpr std::size_t gathering_bytes = 8 + 8 + 8 + 4 + 2;  // And the name.
constexpr std::size_t reason_bytes_max = 256;

Status malformed_message(const char* what) {
    return fail(Code::invalid_argument, std::string("a malformed ") + what + " of a meeting");
}

Answer as_answer(const GroupOutcome& outcome, bool is_merged) {
    Answer answer;
    for (const RankOutcome& one : outcome.ranks) {
        if (!one.status.ok() || !one.reply.empty()) {
            answer.outcomes.push_back({one.rank, one.status, one.reply});
        } else if (!answer.ok.empty() && answer.ok.back().last == one.rank) {
            ++answer.ok.back().last;
        } else {
            answer.ok.push_back({one.rank, one.rank + 1});
        }
    }
    answer.has_value = is_merged;
    answer.value = outcome.merged;
    return answer;
}

}  // namespace

std::vector<std::byte> encode(const Gathering& gathering) {
    std::vector<std::byte> bytes(gathering_bytes + gathering.name.size());
    base::Writer out(bytes);
    out.put(gathering.group);
    out.put(gathering.epoch);
    out.put(gathering.round);
    out.put(gathering.leader);
    out.put_text(gathering.name);
    return bytes;
}

Result<Gathering> decode_gathering(ByteView bytes, ByteView* rest) {
    base::Reader in(bytes);
    Gathering gathering;
    gathering.group = in.take<std::uint64_t>();
    gathering.epoch = in.take<std::uint64_t>();
    gathering.round = in.take<std::uint64_t>();
    gathering.leader = in.take<std::uint32_t>();
    gathering.name = in.take_text();
    if (!in.ok() || gathering.name.size() > Gathering::name_bytes_max) {
        return malformed_message("question");
    }
    *rest = in.take_bytes(in.left());
    return gathering;
}

// epoch u64, code u8, effect u8, stage u8, 0 u8, text (u16 + bytes), and the ranks' outcomes as an
// answer whose positions are ranks.
std::optional<std::vector<std::byte>> encode_outcome(const GroupOutcome& outcome, bool is_merged,
                                                     std::size_t bytes_max) {
    const std::string_view text = base::cut_text(outcome.status.text(), reason_bytes_max);
    const std::size_t front = 8 + 4 + 2 + text.size();
    const Answer answer = as_answer(outcome, is_merged);
    if (front + bytes_of(answer) > bytes_max) return std::nullopt;
    const std::vector<std::byte> rest = encode_answer(answer, bytes_max - front);
    std::vector<std::byte> bytes(front + rest.size());
    base::Writer out(bytes);
    out.put(outcome.epoch);
    out.put(static_cast<std::uint8_t>(outcome.status.code()));
    out.put(static_cast<std::uint8_t>(outcome.status.effect()));
    out.put(static_cast<std::uint8_t>(outcome.status.stage()));
    out.put(std::uint8_t{0});
    out.put_text(text);
    out.put_bytes(rest);
    return bytes;
}

Result<GroupOutcome> decode_outcome(ByteView bytes, const GroupView& view) {
    base::Reader in(bytes);
    GroupOutcome outcome;
    outcome.epoch = in.take<std::uint64_t>();
    const auto code = in.take<std::uint8_t>();
    const auto effect = in.take<std::uint8_t>();
    const auto stage = in.take<std::uint8_t>();
    in.take<std::uint8_t>();
    const std::string_view text = in.take_text();
    if (!in.ok() || code > code_max || effect > 2 || stage > 4) return malformed_message("end");
    if (code != 0) {
        outcome.status = Status(static_cast<Code>(code), std::string(text))
                             .with_effect(static_cast<Effect>(effect))
                             .with_stage(static_cast<Stage>(stage));
    }
    // A few bytes can say many of them.
    const std::size_t ranks_max = named_most(view);
    Result<Answer> answer = decode_answer(in.take_bytes(in.left()), ranks_max);
    if (!answer) return malformed_message("end");
    const auto add = [&](std::uint32_t rank, Status status, std::vector<std::byte> reply) {
        const Member* const member = view.epoch() == outcome.epoch ? view.find(rank) : nullptr;
        outcome.ranks.push_back(
            {rank, std::move(status), std::move(reply), member ? member->incarnation : 0});
    };
    for (const Interval& one : answer->ok) {
        if (outcome.ranks.size() + one.size() > ranks_max) {
            return malformed_message("end");
        }
        for (std::uint32_t rank = one.first; rank < one.last; ++rank) {
            add(rank, Status().with_effect(Effect::applied).with_stage(Stage::executing), {});
        }
    }
    for (Outcome& one : answer->outcomes) {
        add(one.position, std::move(one.status), std::move(one.reply));
    }
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.merged = std::move(answer->value);
    return outcome;
}

std::vector<std::byte> encode(const Seen& seen) {
    std::vector<std::byte> bytes(sizeof seen.state + seen.outcome.size());
    base::Writer out(bytes);
    out.put(seen.state);
    out.put_bytes(seen.outcome);
    return bytes;
}

Result<Seen> decode_seen(ByteView bytes) {
    base::Reader in(bytes);
    Seen seen;
    seen.state = in.take<Seen::State>();
    if (!in.ok() || seen.state > Seen::State::gone) return malformed_message("look");
    seen.outcome = in.take_bytes(in.left());
    return seen;
}

}  // namespace weft::coll
