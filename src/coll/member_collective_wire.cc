#include "coll/member_collective_wire.h"

#include <algorithm>

#include "base/codec.h"
#include "base/text.h"
#include "coll/wire.h"

namespace weft::coll {

namespace {

constexpr std::size_t header_bytes = 8 + 8 + 8 + 4 + 2;  // The name follows.
constexpr std::size_t reason_bytes_max = 256;

Status malformed_message(const char* what) {
    return fail(Code::invalid_argument,
                std::string("a malformed ") + what + " of a member collective");
}

SubtreeReply as_subtree_reply(const GroupOutcome& outcome, bool is_merged) {
    SubtreeReply subtree_reply;
    for (const RankOutcome& one : outcome.ranks) {
        if (!one.status.ok() || !one.reply.empty()) {
            subtree_reply.outcomes.push_back({one.rank, one.status, one.reply});
        } else if (!subtree_reply.ok.empty() && subtree_reply.ok.back().last == one.rank) {
            ++subtree_reply.ok.back().last;
        } else {
            subtree_reply.ok.push_back({one.rank, one.rank + 1});
        }
    }
    subtree_reply.has_value = is_merged;
    subtree_reply.value = outcome.merged;
    return subtree_reply;
}

}  // namespace

std::vector<std::byte> encode(const MemberCollectiveHeader& header) {
    std::vector<std::byte> bytes(header_bytes + header.name.size());
    base::Writer out(bytes);
    out.put(header.group);
    out.put(header.epoch);
    out.put(header.round);
    out.put(header.leader);
    out.put_text(header.name);
    return bytes;
}

Result<MemberCollectiveHeader> decode_member_collective_header(ByteView bytes, ByteView* payload) {
    base::Reader in(bytes);
    MemberCollectiveHeader header;
    header.group = in.take<std::uint64_t>();
    header.epoch = in.take<std::uint64_t>();
    header.round = in.take<std::uint64_t>();
    header.leader = in.take<std::uint32_t>();
    header.name = in.take_text();
    if (!in.ok() || header.name.size() > MemberCollectiveHeader::name_bytes_max) {
        return malformed_message("header");
    }
    *payload = in.take_bytes(in.remaining());
    return header;
}

// epoch u64, code u8, effect u8, stage u8, 0 u8, text (u16 + bytes), and the outcomes as a subtree
// reply, with ranks as positions.
std::optional<std::vector<std::byte>> encode_outcome(const GroupOutcome& outcome, bool is_merged,
                                                     std::size_t bytes_max) {
    const std::string_view text = base::truncate_utf8(outcome.status.text(), reason_bytes_max);
    const std::size_t front = 8 + 4 + 2 + text.size();
    const SubtreeReply subtree_reply = as_subtree_reply(outcome, is_merged);
    if (front + bytes_of(subtree_reply) > bytes_max) return std::nullopt;
    const std::vector<std::byte> payload = encode_subtree_reply(subtree_reply, bytes_max - front);
    std::vector<std::byte> bytes(front + payload.size());
    base::Writer out(bytes);
    out.put(outcome.epoch);
    out.put(static_cast<std::uint8_t>(outcome.status.code()));
    out.put(static_cast<std::uint8_t>(outcome.status.effect()));
    out.put(static_cast<std::uint8_t>(outcome.status.stage()));
    out.put(std::uint8_t{0});
    out.put_text(text);
    out.put_bytes(payload);
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
    if (!in.ok() || code > code_max || effect > 2 || stage > 4) return malformed_message("outcome");
    if (code != 0) {
        outcome.status = Status(static_cast<Code>(code), std::string(text))
                             .with_effect(static_cast<Effect>(effect))
                             .with_stage(static_cast<Stage>(stage));
    }
    // A few bytes can encode many ranks.
    const std::size_t ranks_max = named_max(view);
    Result<SubtreeReply> subtree_reply =
        decode_subtree_reply(in.take_bytes(in.remaining()), ranks_max);
    if (!subtree_reply) return malformed_message("outcome");
    const auto add = [&](std::uint32_t rank, Status status, std::vector<std::byte> reply) {
        const Member* const member = view.epoch() == outcome.epoch ? view.find(rank) : nullptr;
        outcome.ranks.push_back(
            {rank, std::move(status), std::move(reply), member ? member->incarnation : 0});
    };
    for (const Interval& one : subtree_reply->ok) {
        if (outcome.ranks.size() + one.size() > ranks_max) {
            return malformed_message("outcome");
        }
        for (std::uint32_t rank = one.first; rank < one.last; ++rank) {
            add(rank, Status().with_effect(Effect::applied).with_stage(Stage::executing), {});
        }
    }
    for (Outcome& one : subtree_reply->outcomes) {
        add(one.position, std::move(one.status), std::move(one.reply));
    }
    std::sort(outcome.ranks.begin(), outcome.ranks.end(),
              [](const RankOutcome& a, const RankOutcome& b) { return a.rank < b.rank; });
    outcome.merged = std::move(subtree_reply->value);
    return outcome;
}

std::vector<std::byte> encode(const ProbeReply& probe_reply) {
    std::vector<std::byte> bytes(sizeof probe_reply.state + probe_reply.outcome.size());
    base::Writer out(bytes);
    out.put(probe_reply.state);
    out.put_bytes(probe_reply.outcome);
    return bytes;
}

Result<ProbeReply> decode_probe_reply(ByteView bytes) {
    base::Reader in(bytes);
    ProbeReply probe_reply;
    probe_reply.state = in.take<ProbeReply::State>();
    if (!in.ok() || probe_reply.state > ProbeReply::State::unknown)
        return malformed_message("probe reply");
    probe_reply.outcome = in.take_bytes(in.remaining());
    return probe_reply;
}

}  // namespace weft::coll
