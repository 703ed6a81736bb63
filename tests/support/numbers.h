// The numbers of a bare client's requests, counted as an honest client does, so that a test can
// write any request and send it more than once.
#pragma once

#include <map>

#include "rpc/session_wire.h"
#include "support/frames.h"

namespace weft::test {

class Numbers {
  public:
    // A new session: the next request of each slot is its first.
    Frame begin(std::uint64_t high, std::uint64_t low) {
        last_.clear();
        rpc::SessionFrame frame;
        frame.id = {high, low};
        return frame_of(frame);
    }

    // The message, with the next number of its slot in each complete request.
    Frame number(ByteView message) {
        Frame out(message.begin(), message.end());
        core::for_each_frame(message, [&](const core::FrameHead& head, ByteView frame) {
            if (head.kind != core::FrameKind::request) return true;
            if (head.bytes < sizeof(rpc::RequestHeader)) return true;
            constexpr std::size_t at = offsetof(rpc::RequestHeader, call);
            auto call = base::load<rpc::WireCallId>(frame.data() + at);
            call.sequence = ++last_[call.slot];
            base::store(out.data() + (frame.data() - message.data()) + at, call);
            return true;
        });
        return out;
    }

    // The same for a message that may not be sent: counts nothing.
    Frame peek(ByteView message) const { return Numbers(*this).number(message); }

  private:
    std::map<std::uint32_t, std::uint32_t> last_;  // By slot.
};

// Frames about sessions, which other tests ignore.
inline bool is_about_sessions(core::FrameKind kind) {
    return kind >= core::FrameKind::session && kind <= core::FrameKind::call_status;
}

}  // namespace weft::test
