#include "na/hello.h"

#include <algorithm>
#include <utility>

#include "base/assert.h"
#include "base/text.h"

namespace weft::na {

static constexpr std::size_t uri_bytes_max = 256;
// The least message limit of a peer: it must fit an error reply (1040 bytes), and a call of the
// announced eager size with its header, or these would wait for ever.
static constexpr std::uint32_t message_bytes_floor = 2048;

bool is_printable(std::string_view text) { return base::printable(text) == text; }

Hello own_hello(const EndpointParts& parts, const Limits& limits, const std::string& address) {
    return {parts.incarnation,
            static_cast<std::uint32_t>(limits.message_bytes_max),
            static_cast<std::uint32_t>(limits.eager_bytes_max),
            parts.public_uri.empty() ? address : parts.public_uri,
            0,
            own_features,
            parts.contexts,
            parts.context};
}

static unsigned mark_of(const Incarnation& life) {
    return 1 + static_cast<unsigned>(life.low % 255);
}

std::uint16_t encode_wanted(std::uint16_t number, const Incarnation* life) {
    static_assert(contexts_max < 0xff);
    const unsigned low = std::min<unsigned>(number, 0xff);
    if (low == 0) return 0;
    return static_cast<std::uint16_t>(low | (life ? mark_of(*life) << 8 : 0));
}

Wanted decode_wanted(std::uint16_t wanted, const Incarnation& own) {
    const unsigned mark = wanted >> 8;
    if (mark != 0 && mark != mark_of(own)) return {};
    return {static_cast<std::uint16_t>(wanted & 0xff), mark != 0};
}

void encode_head(const Incarnation& incarnation, std::uint16_t wanted, base::Writer& out) {
    out.put(wire_magic);
    out.put(wire_version);
    out.put(wanted);
    out.put(incarnation.high);
    out.put(incarnation.low);
}

Status decode_head(base::Reader& in, std::string_view what, Incarnation& incarnation,
                   std::uint16_t& wanted) {
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
    wanted = in.take<std::uint16_t>();
    incarnation.high = in.take<std::uint64_t>();
    incarnation.low = in.take<std::uint64_t>();
    return {};
}

// What follows the address: {kind, bytes, data}, each kind at most once, in any order. 0 ends them.
enum class Item : std::uint16_t { end = 0, features = 1, contexts = 2 };

static void put_item(base::Writer& out, Item item, std::uint16_t bytes) {
    out.put(static_cast<std::uint16_t>(item));
    out.put(bytes);
}

std::size_t encode(const Hello& hello, Bytes to) {
    WEFT_ASSERT(to.size() >= hello_bytes_max);
    WEFT_ASSERT(hello.contexts <= contexts_max && hello.context < hello.contexts);
    base::Writer out(to);
    encode_head(hello.incarnation, hello.wanted, out);
    out.put(hello.message_bytes_max);
    out.put(hello.eager_bytes_max);
    out.put_text(std::string_view(hello.uri).substr(0, uri_bytes_max));
    if (hello.features != 0) {
        put_item(out, Item::features, sizeof hello.features);
        out.put(hello.features);
    }
    if (hello.contexts != 1) {
        put_item(out, Item::contexts, sizeof hello.contexts + sizeof hello.context);
        out.put(hello.contexts);
        out.put(hello.context);
    }
    return out.written();
}

// False: garbage. Items of unknown kinds are skipped, so that a later version may add some.
static bool take_items(base::Reader& in, Hello& hello) {
    bool has_features = false;
    bool has_contexts = false;
    while (in.remaining() != 0) {
        const auto kind = static_cast<Item>(in.take<std::uint16_t>());
        if (kind == Item::end) return in.ok();
        base::Reader data(in.take_bytes(in.take<std::uint16_t>()));
        if (!in.ok()) return false;
        if (kind == Item::features) {
            if (std::exchange(has_features, true)) return false;
            hello.features = data.take<std::uint64_t>();
        } else if (kind == Item::contexts) {
            if (std::exchange(has_contexts, true)) return false;
            hello.contexts = data.take<std::uint16_t>();
            hello.context = data.take<std::uint16_t>();
            if (hello.contexts > contexts_max || hello.context >= hello.contexts) return false;
        } else {
            continue;
        }
        if (!data.ok() || data.remaining() != 0) return false;
    }
    return true;
}

Result<Hello> decode_hello(ByteView bytes) {
    base::Reader in(bytes);
    Hello hello;
    if (Status status = decode_head(in, "hello", hello.incarnation, hello.wanted); !status.ok())
        return status;
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
    if (!take_items(in, hello)) {
        return fail(Code::data_loss, "the hello has garbage behind its address");
    }
    return hello;
}

void apply_hello(PeerInfo& info, const Hello& hello, const Limits& ours) {
    info.incarnation = hello.incarnation;
    info.features = hello.features;
    info.contexts = hello.contexts;
    info.context = hello.context;
    info.message_bytes_max = std::min<std::size_t>(ours.message_bytes_max, hello.message_bytes_max);
    info.eager_bytes_max = std::min<std::size_t>(ours.eager_bytes_max, hello.eager_bytes_max);
}

Code code_of_refusal(unsigned code) {
    const bool good =
        code > 0 && code <= code_max && static_cast<Code>(code) != Code::unimplemented;
    return good ? static_cast<Code>(code) : Code::unavailable;
}

}  // namespace weft::na
