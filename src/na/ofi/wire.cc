#include "na/ofi/wire.h"

#include "base/assert.h"
#include "base/text.h"

namespace weft::na::ofi {

static std::size_t finish(Bytes message, Prefix prefix, std::size_t body_bytes) {
    WEFT_ASSERT(sizeof(Prefix) + body_bytes <= message.size());
    prefix.bytes = static_cast<std::uint16_t>(body_bytes);
    base::store(message.data(), prefix);
    return sizeof(Prefix) + body_bytes;
}

std::size_t encode_hello(const Label& reply_to, const SocketName& name, const Hello& hello,
                         Bytes to) {
    WEFT_ASSERT(to.size() >= control_bytes_max);
    const Bytes body = to.subspan(sizeof(Prefix));
    base::Writer out(body);
    out.put(reply_to.index);
    out.put(reply_to.tag);
    out.put_text(as_text(name.bytes()));
    const std::size_t written = out.written();
    const std::size_t hello_bytes = encode(hello, body.subspan(written));
    return finish(to, {no_index, wire_magic, 0, 0, Kind::hello}, written + hello_bytes);
}

std::size_t encode_welcome(const Label& to_peer, const Label& label, const Hello& hello, Bytes to) {
    WEFT_ASSERT(to.size() >= control_bytes_max);
    const Bytes body = to.subspan(sizeof(Prefix));
    base::Writer out(body);
    out.put(label.index);
    out.put(label.tag);
    const std::size_t written = out.written();
    const std::size_t hello_bytes = encode(hello, body.subspan(written));
    return finish(to, {to_peer.index, to_peer.tag, 0, 0, Kind::welcome}, written + hello_bytes);
}

std::size_t encode_refusal(const Label& to_peer, const Status& why, Bytes to) {
    WEFT_ASSERT(to.size() >= control_bytes_max);
    base::Writer out(to.subspan(sizeof(Prefix)));
    out.put(static_cast<std::uint8_t>(why.code()));
    out.put_text(base::truncate_utf8(why.text(), refusal_text_max));
    return finish(to, {to_peer.index, to_peer.tag, 0, 0, Kind::refusal}, out.written());
}

std::optional<Prefix> decode_prefix(ByteView message) {
    if (message.size() < sizeof(Prefix)) return std::nullopt;
    const auto prefix = base::load<Prefix>(message.data());
    if (prefix.bytes != message.size() - sizeof(Prefix)) return std::nullopt;
    if (prefix.kind > Kind::piece) return std::nullopt;
    return prefix;
}

std::optional<HelloBody> decode_hello_body(ByteView body) {
    base::Reader in(body);
    HelloBody hello;
    hello.reply_to.index = in.take<std::uint32_t>();
    hello.reply_to.tag = in.take<std::uint32_t>();
    const auto name = SocketName::from_wire(as_bytes(in.take_text()));
    if (!in.ok() || !name) return std::nullopt;
    hello.name = *name;
    hello.hello = in.take_bytes(in.remaining());
    return hello;
}

std::optional<WelcomeBody> decode_welcome_body(ByteView body) {
    base::Reader in(body);
    WelcomeBody welcome;
    welcome.label.index = in.take<std::uint32_t>();
    welcome.label.tag = in.take<std::uint32_t>();
    if (!in.ok()) return std::nullopt;
    welcome.hello = in.take_bytes(in.remaining());
    return welcome;
}

std::optional<RefusalBody> decode_refusal_body(ByteView body) {
    base::Reader in(body);
    RefusalBody refusal;
    const auto code = in.take<std::uint8_t>();
    refusal.text = in.take_text();
    if (!in.ok() || code == 0 || code > code_max) return std::nullopt;
    refusal.code = static_cast<Code>(code);
    if (refusal.text.size() > refusal_text_max || !is_printable(refusal.text)) return std::nullopt;
    return refusal;
}

}  // namespace weft::na::ofi
