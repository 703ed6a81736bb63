#include "coll/wire.h"

#include <algorithm>

#include "base/codec.h"

namespace weft::coll {

void encode_forward(const ForwardHeader& header, ByteView body, Bytes to) {
    base::Writer out(to);
    out.put(header);
    out.put_bytes(body);
}

Result<ForwardView> decode_forward(ByteView bytes, std::uint32_t members) {
    if (bytes.size() < sizeof(ForwardHeader)) {
        return fail(Code::invalid_argument, "a collective shorter than its header");
    }
    const auto header = base::load<ForwardHeader>(bytes.data());
    if (header.first >= header.last || header.last > members || header.root >= members) {
        return fail(Code::invalid_argument, "a collective with an impossible subtree");
    }
    if (!header.tree.is_possible({header.first + 1, header.last})) {
        return fail(Code::invalid_argument, "a collective with an impossible tree");
    }
    if (header.unsettled > header.identity.sequence) {
        return fail(Code::invalid_argument, "a collective with an impossible number");
    }
    if (header.method == forward_method.hash) {
        return fail(Code::invalid_argument, "a collective of collectives");
    }
    return ForwardView{header, bytes.subspan(sizeof header)};
}

// Per rank: rank u32, code u8, effect u8, stage u8, 0 u8, text (u16 + bytes), peer (u16 + bytes),
// reply (u32 + bytes).
static constexpr std::size_t fixed_bytes = 4 + 4 + 2 + 2 + 4;
static constexpr std::size_t text_bytes_max = 256;

static std::size_t bytes_of(const RankOutcome& outcome) {
    return fixed_bytes + std::min(outcome.status.text().size(), text_bytes_max) +
           std::min(outcome.status.peer().size(), text_bytes_max) + outcome.reply.size();
}

static std::size_t bytes_of(const std::vector<RankOutcome>& outcomes) {
    std::size_t total = 0;
    for (const RankOutcome& outcome : outcomes) total += bytes_of(outcome);
    return total;
}

static void shrink(std::vector<RankOutcome>& outcomes, std::size_t bytes_max) {
    std::size_t total = bytes_of(outcomes);
    while (total > bytes_max) {
        auto largest = std::max_element(outcomes.begin(), outcomes.end(),
                                        [](const RankOutcome& a, const RankOutcome& b) {
                                            return a.reply.size() < b.reply.size();
                                        });
        if (largest == outcomes.end() || largest->reply.size() <= text_bytes_max) break;
        total -= bytes_of(*largest);
        const std::size_t lost = largest->reply.size();
        largest->reply = {};
        largest->status =
            fail(Code::resource_exhausted, "the reply of " + std::to_string(lost) +
                                               " bytes did not fit into the collective's")
                .with_effect(Effect::applied)
                .with_stage(Stage::executing);
        total += bytes_of(*largest);
    }
    if (total <= bytes_max) return;
    for (RankOutcome& outcome : outcomes) {
        const bool lost = !outcome.reply.empty();
        const Code code = lost ? Code::resource_exhausted : outcome.status.code();
        outcome.status = Status(code, "")
                             .with_effect(outcome.status.effect())
                             .with_stage(outcome.status.stage());
        outcome.reply = {};
    }
}

std::vector<std::byte> encode_outcomes(std::vector<RankOutcome> outcomes, std::size_t bytes_max) {
    shrink(outcomes, bytes_max);
    std::vector<std::byte> bytes(bytes_of(outcomes));
    base::Writer out(bytes);
    for (const RankOutcome& outcome : outcomes) {
        out.put(outcome.rank);
        out.put(static_cast<std::uint8_t>(outcome.status.code()));
        out.put(static_cast<std::uint8_t>(outcome.status.effect()));
        out.put(static_cast<std::uint8_t>(outcome.status.stage()));
        out.put(std::uint8_t{0});
        out.put_text(outcome.status.text().substr(0, text_bytes_max));
        out.put_text(outcome.status.peer().substr(0, text_bytes_max));
        out.put(static_cast<std::uint32_t>(outcome.reply.size()));
        out.put_bytes(outcome.reply);
    }
    return bytes;
}

Result<std::vector<RankOutcome>> decode_outcomes(ByteView bytes) {
    base::Reader in(bytes);
    std::vector<RankOutcome> outcomes;
    while (in.left() > 0) {
        RankOutcome outcome;
        outcome.rank = in.take<std::uint32_t>();
        const auto code = in.take<std::uint8_t>();
        const auto effect = in.take<std::uint8_t>();
        const auto stage = in.take<std::uint8_t>();
        in.take<std::uint8_t>();
        const std::string_view text = in.take_text();
        const std::string_view peer = in.take_text();
        const ByteView reply = in.take_bytes(in.take<std::uint32_t>());
        if (!in.ok() || code > code_max || effect > 2 || stage > 4) {
            return fail(Code::data_loss, "malformed outcomes of a collective");
        }
        Status status = code == 0 && text.empty()
                            ? Status()
                            : Status(static_cast<Code>(code), std::string(text));
        outcome.status = std::move(status)
                             .with_effect(static_cast<Effect>(effect))
                             .with_stage(static_cast<Stage>(stage));
        if (!peer.empty()) outcome.status = std::move(outcome.status).with_peer(peer);
        outcome.reply.assign(reply.begin(), reply.end());
        outcomes.push_back(std::move(outcome));
    }
    return outcomes;
}

}  // namespace weft::coll
