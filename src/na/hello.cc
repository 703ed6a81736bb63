#include "na/hello.h"

#include "base/codec.h"

namespace weft::na {

static constexpr std::size_t uri_bytes_max = 256;
static constexpr std::uint32_t message_bytes_floor = 1024;

std::size_t encode(const Hello& hello, Bytes to) {
    base::Writer out(to);
    out.put(wire_magic);
    out.put(wire_version);
    out.put(std::uint16_t{0});
    out.put(hello.incarnation.high);
    out.put(hello.incarnation.low);
    out.put(hello.message_bytes_max);
    out.put(hello.eager_bytes_max);
    out.put_text(std::string_view(hello.uri).substr(0, uri_bytes_max));
    return out.written();
}

Result<Hello> decode_hello(ByteView bytes) {
    base::Reader in(bytes);
    if (in.take<std::uint32_t>() != wire_magic) {
        return fail(Code::data_loss, "the peer does not speak weft (bad magic in its hello)");
    }
    const auto version = in.take<std::uint16_t>();
    if (version != wire_version) {
        return fail(Code::failed_precondition, "the peer speaks wire version " +
                                                   std::to_string(version) + ", this is " +
                                                   std::to_string(wire_version));
    }
    in.take<std::uint16_t>();
    Hello hello;
    hello.incarnation.high = in.take<std::uint64_t>();
    hello.incarnation.low = in.take<std::uint64_t>();
    hello.message_bytes_max = in.take<std::uint32_t>();
    hello.eager_bytes_max = in.take<std::uint32_t>();
    const std::string_view uri = in.take_text();
    if (!in.ok()) return fail(Code::data_loss, "truncated hello");
    if (uri.size() > uri_bytes_max) return fail(Code::data_loss, "hello with an oversized address");
    if (hello.message_bytes_max < message_bytes_floor ||
        hello.eager_bytes_max >= hello.message_bytes_max) {
        return fail(Code::data_loss, "hello with impossible limits");
    }
    hello.uri = uri;
    return hello;
}

}  // namespace weft::na
