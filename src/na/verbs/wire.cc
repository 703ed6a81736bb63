#include "na/verbs/wire.h"

#include <algorithm>

#include "base/codec.h"
#include "base/text.h"

namespace weft::na::verbs {

std::size_t encode(const Opening& opening, Bytes to) {
    base::Writer out(to);
    out.put(wire_magic);
    out.put(wire_version);
    out.put(std::uint16_t{0});
    out.put(opening.incarnation.high);
    out.put(opening.incarnation.low);
    out.put(opening.index);
    out.put(opening.credits);
    return out.written();
}

Result<Opening> decode_opening(ByteView bytes) {
    base::Reader in(bytes);
    if (in.take<std::uint32_t>() != wire_magic) {
        return fail(Code::data_loss, "the peer does not speak weft (bad magic in its request)");
    }
    const auto version = in.take<std::uint16_t>();
    if (version != wire_version) {
        return fail(Code::failed_precondition, "the peer speaks wire version " +
                                                   std::to_string(version) + ", this is " +
                                                   std::to_string(wire_version));
    }
    in.take<std::uint16_t>();
    Opening opening;
    opening.incarnation.high = in.take<std::uint64_t>();
    opening.incarnation.low = in.take<std::uint64_t>();
    opening.index = in.take<std::uint32_t>();
    opening.credits = in.take<std::uint32_t>();
    if (!in.ok()) return fail(Code::data_loss, "a truncated request to connect");
    if (opening.index >= indices_max || opening.credits == 0 || opening.credits > credits_max) {
        return fail(Code::data_loss, "a request to connect with impossible numbers");
    }
    return opening;
}

std::size_t encode_rejection(const Status& why, Bytes to) {
    base::Writer out(to.first(rejection_bytes_max));
    out.put(wire_magic);
    out.put(wire_version);
    out.put(static_cast<std::uint16_t>(why.code()));
    constexpr std::size_t text_max = rejection_bytes_max - 4 - 2 - 2 - 2;
    out.put_text(base::cut_text(why.text(), text_max));
    return out.written();
}

std::optional<Status> decode_rejection(ByteView bytes) {
    base::Reader in(bytes);
    if (in.take<std::uint32_t>() != wire_magic) return std::nullopt;
    in.take<std::uint16_t>();
    const auto code = in.take<std::uint16_t>();
    const std::string_view text = in.take_text();
    if (!in.ok()) return std::nullopt;
    return fail(code_of_refusal(code), base::printable(text));
}

std::size_t encode(const LaneWord& word, Bytes to) {
    base::Writer out(to);
    out.put(static_cast<std::uint32_t>(word.what));
    out.put(word.number);
    out.put(word.queue_pair);
    out.put(word.sequence);
    out.put(word.reads);
    out.put(word.aux);
    return out.written();
}

std::optional<LaneWord> decode_lane_word(ByteView bytes) {
    if (bytes.size() != lane_word_bytes) return std::nullopt;
    base::Reader in(bytes);
    LaneWord word;
    const auto what = in.take<std::uint32_t>();
    word.what = static_cast<LaneWord::What>(what);
    word.number = in.take<std::uint32_t>();
    word.queue_pair = in.take<std::uint32_t>();
    word.sequence = in.take<std::uint32_t>();
    word.reads = in.take<std::uint32_t>();
    word.aux = in.take<std::uint32_t>();
    if (what > static_cast<std::uint32_t>(LaneWord::What::gone) ||
        word.queue_pair >= packet_numbers || word.sequence >= packet_numbers || word.reads > 255) {
        return std::nullopt;
    }
    return word;
}

}  // namespace weft::na::verbs
