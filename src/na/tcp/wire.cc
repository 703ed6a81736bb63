#include "na/tcp/wire.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/assert.h"
#include "base/text.h"
#include "na/arena.h"

namespace weft::na::tcp {

static constexpr std::size_t refusal_text_max = 256;

// Writes the head in front of the body, and zeroes the padding.
static std::size_t finish(ControlKind control, std::uint16_t aux, std::size_t body, Bytes to) {
    StreamHead head;
    head.kind = static_cast<std::uint8_t>(control);
    head.aux = aux;
    head.bytes = static_cast<std::uint32_t>(sizeof head + body);
    const std::size_t whole = padded(head.bytes);
    WEFT_ASSERT(whole <= to.size());
    base::store(to.data(), head);
    std::fill(to.begin() + head.bytes, to.begin() + static_cast<std::ptrdiff_t>(whole),
              std::byte{0});
    return whole;
}

std::size_t encode_hello(const Hello& hello, Bytes to) {
    return finish(ControlKind::hello, 0, encode(hello, to.subspan(sizeof(StreamHead))), to);
}

std::size_t encode_welcome(const Ticket& ticket, const Hello& hello, Bytes to) {
    base::store(to.data() + sizeof(StreamHead), ticket);
    const Bytes rest = to.subspan(sizeof(StreamHead) + sizeof ticket);
    return finish(ControlKind::welcome, 0, sizeof ticket + encode(hello, rest), to);
}

std::size_t encode_refusal(const Status& why, Bytes to) {
    const std::string_view text = base::truncate_utf8(why.text(), refusal_text_max);
    base::Writer out(to.subspan(sizeof(StreamHead)));
    out.put_bytes(as_bytes(text));
    return finish(ControlKind::refusal, static_cast<std::uint16_t>(why.code()), text.size(), to);
}

std::size_t encode_join(const Ticket& ticket, std::uint16_t context, Bytes to) {
    base::store(to.data() + sizeof(StreamHead), ticket);
    return finish(ControlKind::join, static_cast<std::uint16_t>(context + 1), sizeof ticket, to);
}

std::size_t encode_control(ControlKind control, Bytes to) { return finish(control, 0, 0, to); }

bool is_control(ByteView frame, ControlKind control) {
    return frame.size() >= sizeof(StreamHead) &&
           base::load<StreamHead>(frame.data()).kind == static_cast<std::uint8_t>(control);
}

static Status garbage() {
    return fail(Code::data_loss,
                "the peer does not speak weft over tcp (garbage in its handshake)");
}

// An answer that is no welcome: the peer's refusal, or garbage.
static Status refusal_status(ByteView frame) {
    if (!is_control(frame, ControlKind::refusal)) return garbage();
    const std::uint16_t code = base::load<StreamHead>(frame.data()).aux;
    const std::string_view text = as_text(frame.subspan(sizeof(StreamHead)));
    return fail(code_of_refusal(code),
                "refused: " + base::printable(text.substr(0, refusal_text_max)));
}

Result<Hello> decode_hello_frame(ByteView frame) {
    if (!is_control(frame, ControlKind::hello)) return garbage();
    return decode_hello(frame.subspan(sizeof(StreamHead)));
}

Result<Ticket> decode_join(ByteView frame) {
    if (!is_control(frame, ControlKind::join) ||
        frame.size() != sizeof(StreamHead) + sizeof(Ticket)) {
        return garbage();
    }
    return base::load<Ticket>(frame.data() + sizeof(StreamHead));
}

std::uint16_t context_of_join(ByteView frame) {
    WEFT_ASSERT(is_control(frame, ControlKind::join));
    return base::load<StreamHead>(frame.data()).aux;
}

Result<Welcome> decode_welcome(ByteView frame) {
    if (!is_control(frame, ControlKind::welcome)) return refusal_status(frame);
    if (frame.size() < sizeof(StreamHead) + sizeof(Ticket)) return garbage();
    Welcome welcome;
    welcome.ticket = base::load<Ticket>(frame.data() + sizeof(StreamHead));
    Result<Hello> hello = decode_hello(frame.subspan(sizeof(StreamHead) + sizeof(Ticket)));
    if (!hello) return std::move(hello).status();
    welcome.hello = *std::move(hello);
    return welcome;
}

Status decode_joined(ByteView frame) {
    if (!is_control(frame, ControlKind::welcome)) return refusal_status(frame);
    return frame.size() == sizeof(StreamHead) ? Status() : garbage();
}

const char* refusal_text(std::uint8_t refusal) {
    static constexpr std::array texts{"refused",
                                      "the owner has no such region",
                                      "the reference is stale",
                                      "the region was revoked",
                                      "the reference has a wrong key",
                                      "the region may not be read",
                                      "the region may not be written",
                                      "the range ends beyond the region",
                                      memory_text_unwritable,
                                      memory_text_unreadable};
    return texts[refusal < texts.size() ? refusal : 0];
}

}  // namespace weft::na::tcp
