// Core's frames: every frame lies inside its message, and the judges of each kind agree with what
// the decoders then rely on.
#include "bulk/wire.h"
#include "core/frame.h"
#include "fuzz/fuzz.h"
#include "rpc/header.h"

using namespace weft;
using fuzz::must;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ByteView message(reinterpret_cast<const std::byte*>(data), size);
    std::size_t seen = 0;
    core::for_each_frame(message, [&](const core::FrameHead& head, ByteView frame) {
        must(frame.size() == head.bytes, "a frame is as long as its head says");
        must(frame.data() >= message.data() &&
                 frame.data() + frame.size() <= message.data() + message.size(),
             "a frame lies inside its message");
        seen += frame.size();
        if (!rpc::why_no_request(head)) {
            must(frame.size() >= sizeof(rpc::RequestHeader), "a request has its header");
        }
        if (!rpc::why_no_reply(head)) {
            must(frame.size() >= sizeof(rpc::ReplyHeader), "a reply has its header");
            must(rpc::unpack(head.aux).has_value(), "a reply has an outcome");
        }
        if (!rpc::why_no_cancel(head)) {
            must(frame.size() == sizeof(rpc::CancelHeader), "a cancel is its header");
        }
        return true;
    });
    must(seen <= size, "frames do not overlap");
    return 0;
}
