// Frames: the unit that core sends and dispatches. docs/wire-format.md has the tables.
//
// A transport message is one or more frames, each starting at a multiple of 8 bytes.
#pragma once

#include <bit>
#include <cstdint>

#include <weft/bytes.h>

#include "base/codec.h"

namespace weft::core {

// What another kind needs: docs/architecture.md, "Where to look".
enum class FrameKind : std::uint8_t {
    none = 0,
    request = 1,         // rpc
    reply = 2,           // rpc
    cancel = 3,          // rpc
    ping = 4,            // core: liveness probe.
    pong = 5,            // core: answer to a ping; aux as in the ping.
    bulk_open = 6,       // bulk: requests access to a range.
    bulk_grant = 7,      // bulk: the answer to bulk_open.
    bulk_close = 8,      // bulk: returns a grant (the fence's acknowledgement).
    bulk_revoke = 9,     // bulk: the owner revokes a grant.
    bulk_data = 10,      // bulk: bytes for a range of the receiver, ahead of a reply.
    session = 11,        // rpc: begins a session, or resumes it on a later connection.
    session_grant = 12,  // rpc: the session's slots, or why there are none.
    session_end = 13,    // rpc: the client queries no call of the session any more.
    call_query = 14,     // rpc: queries the outcome of a call.
    call_status = 15,    // rpc: the call was not received, or is executing.
};
inline constexpr std::size_t frame_kinds = 16;

struct FrameHead {
    FrameKind kind = FrameKind::none;
    std::uint8_t flags = 0;
    std::uint16_t aux = 0;    // Per kind.
    std::uint32_t bytes = 0;  // Of the whole frame, this head included, padding not.
};
static_assert(sizeof(FrameHead) == 8);

// The aux of the pings of an orderly end; 0: of the others.
inline constexpr std::uint16_t final_ping = 1;

// Kind, flags and aux at once, for the hot path's comparisons.
constexpr std::uint32_t first_word_of(FrameHead head) {
    return static_cast<std::uint32_t>(std::bit_cast<std::uint64_t>(head));
}

constexpr std::size_t padded(std::size_t frame_bytes) {
    return (frame_bytes + 7) & ~std::size_t{7};
}

// Calls `visit(head, frame)` for each frame of a message; stops when it returns false. Returns
// false when the message is malformed or the visit stopped it.
template <class Visit>
bool for_each_frame(ByteView message, Visit&& visit) {
    while (!message.empty()) {
        if (message.size() < sizeof(FrameHead)) return false;
        const auto head = base::load<FrameHead>(message.data());
        if (head.bytes < sizeof(FrameHead) || head.bytes > message.size()) return false;
        if (!visit(head, message.first(head.bytes))) return false;
        const std::size_t step = padded(head.bytes);
        message = step >= message.size() ? ByteView{} : message.subspan(step);
    }
    return true;
}

}  // namespace weft::core
