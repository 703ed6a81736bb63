#include "na/verbs/wire.h"

#include <algorithm>

#include "base/assert.h"
#include "base/codec.h"
#include "base/text.h"

namespace weft::na::verbs {

std::size_t encode(const ConnectData& connect_data, Bytes to) {
    WEFT_ASSERT(to.size() >= connect_data_bytes);
    base::Writer out(to);
    encode_head(connect_data.incarnation, connect_data.wanted, out);
    out.put(connect_data.index);
    out.put(connect_data.credits);
    out.put(connect_data.context);
    return out.written();
}

Result<ConnectData> decode_connect_data(ByteView bytes) {
    base::Reader in(bytes);
    ConnectData connect_data;
    Status status = decode_head(in, "request", connect_data.incarnation, connect_data.wanted);
    if (!status.ok()) return status;
    connect_data.index = in.take<std::uint32_t>();
    connect_data.credits = in.take<std::uint32_t>();
    connect_data.context = in.take<std::uint16_t>();
    if (!in.ok()) return fail(Code::data_loss, "a truncated request to connect");
    if (connect_data.index >= indices_max || connect_data.credits == 0 ||
        connect_data.credits > credits_max) {
        return fail(Code::data_loss, "a request to connect with impossible numbers");
    }
    return connect_data;
}

std::size_t encode_rejection(const Status& why, Bytes to) {
    WEFT_ASSERT(to.size() >= rejection_bytes_max);
    base::Writer out(to.first(rejection_bytes_max));
    out.put(wire_magic);
    out.put(wire_version);
    out.put(static_cast<std::uint16_t>(why.code()));
    constexpr std::size_t text_max = rejection_bytes_max - 4 - 2 - 2 - 2;
    out.put_text(base::truncate_utf8(why.text(), text_max));
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

std::size_t encode(const QueuePairMessage& word, Bytes to) {
    WEFT_ASSERT(to.size() >= queue_pair_message_bytes);
    base::Writer out(to);
    out.put(static_cast<std::uint32_t>(word.type));
    out.put(word.number);
    out.put(word.qp_number);
    out.put(word.sequence);
    out.put(word.reads);
    out.put(word.aux);
    return out.written();
}

std::optional<QueuePairMessage> decode_queue_pair_message(ByteView bytes) {
    if (bytes.size() != queue_pair_message_bytes) return std::nullopt;
    base::Reader in(bytes);
    QueuePairMessage word;
    const auto what = in.take<std::uint32_t>();
    word.type = static_cast<QueuePairMessage::Type>(what);
    word.number = in.take<std::uint32_t>();
    word.qp_number = in.take<std::uint32_t>();
    word.sequence = in.take<std::uint32_t>();
    word.reads = in.take<std::uint32_t>();
    word.aux = in.take<std::uint32_t>();
    if (what > static_cast<std::uint32_t>(QueuePairMessage::Type::destroyed) ||
        word.qp_number >= packet_numbers || word.sequence >= packet_numbers || word.reads > 255) {
        return std::nullopt;
    }
    return word;
}

}  // namespace weft::na::verbs
