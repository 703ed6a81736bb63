// The first bytes of a connection on each transport, and the references that travel in messages.
#include "fuzz/fuzz.h"
#include "na/hello.h"
#include "na/tcp/wire.h"
#if WEFT_WITH_OFI
#include "na/ofi/wire.h"
#endif

#include <weft/region.h>

using namespace weft;
using fuzz::must;

static void check_hello(ByteView bytes) {
    const Result<na::Hello> hello = na::decode_hello(bytes);
    if (!hello) return;
    must(hello->uri.size() <= 256, "an address is bounded");
    must(hello->eager_bytes_max <= hello->message_bytes_max, "a call fits a message");
    std::byte again[na::hello_bytes_max];
    const std::size_t length = na::encode(*hello, again);
    const Result<na::Hello> twice = na::decode_hello({again, length});
    must(twice.ok() && twice->uri == hello->uri && twice->incarnation == hello->incarnation,
         "a hello survives the way there and back");
}

static void check_reference(ByteView bytes) {
    const Result<RegionRef> ref = RegionRef::decode(bytes);
    if (!ref) return;
    std::array<std::byte, RegionRef::wire_bytes> again;
    ref->encode(again);
    must(std::memcmp(again.data(), bytes.data(), again.size()) == 0,
         "a reference that is accepted is encoded as it came");
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    fuzz::Input input(data, size);
    const std::uint8_t which = input.byte();
    const ByteView bytes = input.rest();
    switch (which % 8) {
        case 0: check_hello(bytes); break;
        case 1: check_reference(bytes); break;
        case 2: (void)na::tcp::decode_hello_frame(bytes); break;
        case 3: (void)na::tcp::decode_welcome(bytes); break;
        case 4: (void)na::tcp::decode_join(bytes); break;
        case 5: (void)na::tcp::decode_joined(bytes); break;
#if WEFT_WITH_OFI
        case 6:
            if (na::ofi::decode_prefix(bytes)) {
                const ByteView body = bytes.subspan(sizeof(na::ofi::Prefix));
                if (const auto hello = na::ofi::decode_hello_body(body)) check_hello(hello->hello);
                (void)na::ofi::decode_welcome_body(body);
                (void)na::ofi::decode_refusal_body(body);
            }
            break;
        case 7: (void)na::SocketName::from_wire(bytes); break;
#endif
        default: break;
    }
    return 0;
}
