// The first bytes of a connection over tcp and ofi+tcp, and the hello shared by all transports. The
// handshake of sm carries descriptors: fuzz_sm_hello.cc.
#include "fuzz/fuzz.h"
#include "na/hello.h"
#include "na/tcp/wire.h"
#if WEFT_WITH_OFI
#include "na/ofi/wire.h"
#endif

using namespace weft;
using fuzz::must;

static bool has_controls(std::string_view text) {
    return std::ranges::any_of(
        text, [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
}

static bool is_same(const na::Hello& a, const na::Hello& b) {
    return a.incarnation == b.incarnation && a.message_bytes_max == b.message_bytes_max &&
           a.eager_bytes_max == b.eager_bytes_max && a.uri == b.uri && a.wanted == b.wanted &&
           a.features == b.features && a.contexts == b.contexts && a.context == b.context;
}

static void check_good(const na::Hello& hello) {
    must(hello.uri.size() <= 256 && !has_controls(hello.uri), "an address is fit for a log");
    must(hello.message_bytes_max >= 2048, "any refusal fits a message");
    must(std::uint64_t{hello.eager_bytes_max} + 32 <= hello.message_bytes_max,
         "a call fits a message");
    must(hello.contexts <= na::contexts_max && hello.context < hello.contexts,
         "a context is one of the peer's");
    na::Limits ours;
    ours.message_bytes_max = 65 * 1024;
    ours.eager_bytes_max = 64 * 1024;
    na::PeerInfo info;
    na::apply_hello(info, hello, ours);
    must(info.message_bytes_max <= ours.message_bytes_max &&
             info.eager_bytes_max <= ours.eager_bytes_max,
         "a peer does not raise the local limits");
}

static void check_hello(ByteView bytes) {
    const Result<na::Hello> hello = na::decode_hello(bytes);
    if (!hello) return;
    check_good(*hello);
    std::byte room[na::hello_bytes_max];
    const std::size_t length = na::encode(*hello, room);
    must(length <= bytes.size(), "a hello does not grow");
    const std::vector<std::byte> again = fuzz::exact({room, length});
    const Result<na::Hello> twice = na::decode_hello(again);
    must(twice.ok() && is_same(*hello, *twice), "a hello survives encoding and decoding");
    for (std::size_t cut = 0; cut < length; ++cut) {
        const Result<na::Hello> part = na::decode_hello(ByteView(again).first(cut));
        must(!part.ok() || na::encode(*part, room) == cut,
             "a hello cut short is none, or lacks whole items");
    }
}

static void check_refusal(const Status& status) {
    must(!status.ok(), "a refusal is a failure");
    must(status.code() != Code::unimplemented, "a refusal has no text of the local endpoint");
    must(status.text().size() <= 1280 && !has_controls(status.text()),
         "a refusal's text is fit for a log");
}

static void check_tcp(ByteView frame) {
    std::byte room[na::tcp::handshake_bytes_max];
    if (const auto hello = na::tcp::decode_hello_frame(frame)) {
        check_good(*hello);
        must(na::tcp::encode_hello(*hello, room) <= sizeof room, "a hello fits a greeting");
    }
    const auto welcome = na::tcp::decode_welcome(frame);
    if (welcome) {
        check_good(welcome->hello);
        const std::size_t bytes = na::tcp::encode_welcome(welcome->ticket, welcome->hello, room);
        const auto twice = na::tcp::decode_welcome(ByteView(room).first(bytes));
        must(
            twice.ok() && twice->ticket == welcome->ticket && is_same(twice->hello, welcome->hello),
            "a welcome survives encoding and decoding");
    } else {
        check_refusal(welcome.status());
    }
    if (const auto ticket = na::tcp::decode_join(frame)) {
        const std::size_t bytes = na::tcp::encode_join(*ticket, 0, room);
        must(bytes == frame.size(), "a join has one length");
        must(na::tcp::decode_join(ByteView(room).first(bytes)).value() == *ticket, "a ticket");
    }
    const Status joined = na::tcp::decode_joined(frame);
    if (joined.ok()) must(frame.size() == sizeof(na::tcp::StreamHead), "a consent has no body");
    else check_refusal(joined);
}

#if WEFT_WITH_OFI
static void check_ofi(ByteView message) {
    const auto prefix = na::ofi::decode_prefix(message);
    if (!prefix) return;
    must(prefix->bytes + sizeof *prefix == message.size(), "a prefix knows its message's length");
    must(prefix->kind <= na::ofi::Kind::piece, "a kind is valid");
    const ByteView body = message.subspan(sizeof *prefix);
    std::byte room[na::ofi::control_bytes_max];
    if (const auto hello = na::ofi::decode_hello_body(body)) {
        check_hello(hello->hello);
        if (const auto inner = na::decode_hello(hello->hello)) {
            const std::size_t bytes =
                na::ofi::encode_hello(hello->reply_to, hello->name, *inner, room);
            const auto twice =
                na::ofi::decode_hello_body(ByteView(room).first(bytes).subspan(sizeof *prefix));
            must(twice && twice->reply_to == hello->reply_to &&
                     std::ranges::equal(twice->name.bytes(), hello->name.bytes()),
                 "a hello survives encoding and decoding");
        }
    }
    if (const auto welcome = na::ofi::decode_welcome_body(body)) check_hello(welcome->hello);
    if (const auto refusal = na::ofi::decode_refusal_body(body)) {
        const Code code = na::code_of_refusal(static_cast<unsigned>(refusal->code));
        check_refusal(fail(code, std::string(refusal->text)));
    }
}

static void check_name(ByteView bytes) {
    const auto name = na::SocketName::from_wire(bytes);
    if (!name) return;
    must(name->size() == bytes.size(), "a name has the length of its encoding");
    must(name->port() != 0 && !name->is_any(), "a name is a destination");
    const auto again = na::SocketName::from_numeric(name->host(), name->port());
    must(again && again->text() == name->text(), "a name is what it prints");
}
#endif

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const std::vector<std::byte> bytes = fuzz::exact(input.rest());
    switch (which % 4) {
        case 0: check_hello(bytes); break;
        case 1: check_tcp(bytes); break;
#if WEFT_WITH_OFI
        case 2: check_ofi(bytes); break;
        case 3: check_name(bytes); break;
#endif
        default: break;
    }
    return 0;
}
