// Core's frames: every frame lies inside its message, one after the other. The validators of each
// kind agree with each other and with the assumptions of the decoders.
#include "bulk/wire.h"
#include "core/frame.h"
#include "fuzz/fuzz.h"
#include "rpc/header.h"
#include "rpc/session_wire.h"

using namespace weft;
using core::FrameKind;
using fuzz::must;

static void check_outcome(std::uint16_t aux) {
    const auto outcome = rpc::unpack(aux);
    if (!outcome) return;
    must(rpc::pack(outcome->code, outcome->effect, outcome->stage) == aux,
         "an outcome is packed as it was unpacked");
    must(name_of(outcome->code) != "INVALID_CODE" && name_of(outcome->effect) != "invalid" &&
             name_of(outcome->stage) != "invalid",
         "every code of the wire has a name");
}

static void check_deadline(std::uint32_t remaining_us) {
    const TimePoint now{1'000'000s};
    const TimePoint deadline = rpc::to_deadline(now, remaining_us);
    must(deadline >= now, "a deadline of the wire has not expired on arrival");
    must((deadline == never) == (remaining_us == rpc::remaining_unbounded),
         "only one value means none");
    must(rpc::to_remaining_us(now, deadline) == remaining_us,
         "the remaining time is forwarded unchanged");
}

static void check_request(const core::FrameHead& head, ByteView frame) {
    const bool good = !rpc::why_no_request(head);
    must(rpc::is_request(head) ==
             (good && head.kind == FrameKind::request && (head.flags & ~rpc::idempotent_flag) == 0),
         "the short check of a request equals the long check of one without rendezvous and inline "
         "bulk");
    if (!good) return;
    must(frame.size() >= sizeof(rpc::RequestHeader), "a request has its header");
    const auto header = base::load<rpc::RequestHeader>(frame.data());
    check_deadline(header.remaining_us);
    if (!rpc::is_request(head) || header.reserved != 0) return;
    std::byte again[sizeof(rpc::RequestHeader)];
    rpc::store_request(again, frame.size(), head.flags, header.call, header.remaining_us,
                       header.method);
    must(std::memcmp(again, frame.data(), sizeof again) == 0,
         "a request is encoded as it was decoded");
}

static void check_reply(const core::FrameHead& head, ByteView frame) {
    const bool good = !rpc::why_no_reply(head);
    if (rpc::is_plain_reply(head)) must(good, "the short check of a reply accepts no more");
    if (!good) return;
    must(frame.size() >= sizeof(rpc::ReplyHeader), "a reply has its header");
    must(rpc::unpack(head.aux).has_value(), "a reply has an outcome");
    if (head.kind != FrameKind::reply || head.flags != 0) return;
    std::byte again[sizeof(rpc::ReplyHeader)];
    rpc::store_reply(again, frame.size(), head.aux,
                     base::load<rpc::ReplyHeader>(frame.data()).call);
    must(std::memcmp(again, frame.data(), sizeof again) == 0,
         "a reply is encoded as it was decoded");
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const ByteView message(reinterpret_cast<const std::byte*>(data), size);
    std::size_t next = 0;  // Where the next frame must begin.
    std::size_t count = 0;
    const bool whole = core::for_each_frame(message, [&](const core::FrameHead& head,
                                                         ByteView frame) {
        must(frame.size() == head.bytes, "a frame is as long as its head says");
        must(frame.size() >= sizeof head, "a frame has its head");
        must(frame.data() == message.data() + next, "frames follow each other");
        must(frame.size() <= size - next, "a frame lies inside its message");
        next += core::padded(frame.size());
        ++count;
        check_outcome(head.aux);
        check_request(head, frame);
        check_reply(head, frame);
        if (!rpc::why_no_session(head)) {
            must(frame.size() == sizeof(rpc::SessionFrame), "a session frame has its fixed size");
        }
        if (!rpc::why_no_session_grant(head) || !rpc::why_no_call_query(head) ||
            !rpc::why_no_call_status(head)) {
            must(frame.size() == sizeof(rpc::SessionGrantFrame),
                 "these frames have the size of a grant");
        }
        if (!rpc::why_no_cancel(head)) {
            must(frame.size() == sizeof(rpc::CancelHeader), "a cancel frame is its header");
        }
        return true;
    });
    must(next < size + 8, "frames do not leave their message");
    if (whole) must(next >= size, "nothing of a good message is left over");
    // A visit ends at the first frame for which its visitor returns false.
    std::size_t visits = 0;
    must(!core::for_each_frame(message,
                               [&](const core::FrameHead&, ByteView) {
                                   ++visits;
                                   return false;
                               }) ||
             size == 0,
         "a stopped visit returns false");
    must(visits == (count > 0 ? 1u : 0u), "a visit stops at the first false");
    return 0;
}
