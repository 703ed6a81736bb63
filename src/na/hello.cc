#include "na/hello.h"

#include <algorithm>

#include "base/assert.h"
#include "base/text.h"

namespace weft::na {

static constexpr std::size_t uri_bytes_max = 256;
// The least message limit of a peer: it must fit an error reply (1040 bytes), and a call of the
// announced eager size with its header, or these would wait for ever.
static constexpr std::uint32_t message_bytes_floor = 2048;

bool is_printable(std::string_view text) { return base::printable(text) == text; }

Hello own_hello(const EndpointParts& parts, const Limits& limits, const std::string& address) {
    return {parts.incarnation, static_cast<std::uint32_t>(limits.message_bytes_max),
            static_cast<std::uint32_t>(limits.eager_bytes_max),
            parts.public_uri.empty() ? address : parts.public_uri};
}

void encode_head(const Incarnation& incarnation, base::Writer& out) {
    out.put(wire_magic);
    out.put(wire_version);
    out.put(std::uint16_t{0});
    out.put(incarnation.high);
    out.put(incarnation.low);
}

Status decode_head(base::Reader& in, std::string_view what, Incarnation& incarnation) {
    if (in.take<std::uint32_t>() != wire_magic) {
        return fail(Code::data_loss,
                    "the peer does not speak weft (bad magic in its " + std::string(what) + ")");
    }
    const auto version = in.take<std::uint16_t>();
    if (version != wire_version) {
        return fail(Code::failed_precondition, "the peer speaks wire version " +
                                                   std::to_string(version) + ", this is " +
                                                   std::to_string(wire_version));
    }
    in.take<std::uint16_t>();
    incarnation.high = in.take<std::uint64_t>();
    incarnation.low = in.take<std::uint64_t>();
    return {};
}

std::size_t encode(const Hello& hello, Bytes to) {
    WEFT_ASSERT(to.size() >= hello_bytes_max);
    base::Writer out(to);
    encode_head(hello.incarnation, out);
    out.put(hello.message_bytes_max);
    out.put(hello.eager_bytes_max);
    out.put_text(std::string_view(hello.uri).substr(0, uri_bytes_max));
    return out.written();
}

Result<Hello> decode_hello(ByteView bytes) {
    base::Reader in(bytes);
    Hello hello;
    if (Status status = decode_head(in, "hello", hello.incarnation); !status.ok()) return status;
    hello.message_bytes_max = in.take<std::uint32_t>();
    hello.eager_bytes_max = in.take<std::uint32_t>();
    const std::string_view uri = in.take_text();
    if (!in.ok()) return fail(Code::data_loss, "the hello is truncated");
    if (uri.size() > uri_bytes_max)
        return fail(Code::data_loss, "the hello has an address of more than " +
                                         std::to_string(uri_bytes_max) + " bytes");
    if (!is_printable(uri)) {
        return fail(Code::data_loss, "the hello has control or format characters in its address");
    }
    if (hello.message_bytes_max < message_bytes_floor ||
        hello.eager_bytes_max > hello.message_bytes_max - call_header_bytes_max) {
        return fail(Code::data_loss, "the hello has impossible limits");
    }
    hello.uri = uri;
    return hello;
}

void apply_hello(PeerInfo& info, const Hello& hello, const Limits& ours) {
    info.incarnation = hello.incarnation;
    info.message_bytes_max = std::min<std::size_t>(ours.message_bytes_max, hello.message_bytes_max);
    info.eager_bytes_max = std::min<std::size_t>(ours.eager_bytes_max, hello.eager_bytes_max);
}

Code code_of_refusal(unsigned code) {
    const bool good =
        code > 0 && code <= code_max && static_cast<Code>(code) != Code::unimplemented;
    return good ? static_cast<Code>(code) : Code::unavailable;
}

}  // namespace weft::na
