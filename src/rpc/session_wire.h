// Wire form of sessions. docs/wire-format.md has the tables, docs/adr/0006-sessions.md the reasons.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <weft/time.h>

#include "core/frame.h"
#include "rpc/header.h"

namespace weft::rpc {

// A client's name for its session: random bits that are sent to only one incarnation of a server.
struct SessionId {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const SessionId&, const SessionId&) = default;
};

// Slots that both sides may use before a grant arrives.
inline constexpr std::uint32_t initial_slots = 64;
inline constexpr std::uint32_t slots_max = 1024;

// Client to server, before the first request of a connection.
inline constexpr std::uint8_t resume_flag = 1;
struct SessionFrame {
    core::FrameHead head{core::FrameKind::session, 0, 0, sizeof(SessionFrame)};
    SessionId id;
};
static_assert(sizeof(SessionFrame) == 24);

// How long a client tries to reconnect to a lost server that had been silent for `silence` before:
// the client fails its calls within 3 s after the server became unreachable. A server that shuts
// down waits as long for a lost client.
inline constexpr Duration reconnect_max = 1s;
inline constexpr Duration reconnect_min = 50ms;
inline constexpr Duration unreachable_max = 2900ms;
inline Duration reconnect_time(Duration silence) {
    return std::clamp(unreachable_max - silence, reconnect_min, reconnect_max);
}

// Server to client: the reply to a session frame, and again whenever the grant changes.
enum class SessionReply : std::uint16_t {
    granted,  // Begun, or the grant changed.
    resumed,  // The server has the session: the client may query its calls.
    expired,  // The server no longer has the session or the outcomes of its calls.
    full,     // No room for a session now.
    ended,    // The server shuts down: it starts no further call of this session. Calls without a
              // reply, except queried ones, never ran.
};
struct SessionGrantFrame {
    core::FrameHead head{core::FrameKind::session_grant, 0, 0, sizeof(SessionGrantFrame)};
    std::uint32_t slots = 0;   // Slots below this number exist.
    std::uint32_t window = 0;  // So many slots may be in use; calls in flight continue.
};
static_assert(sizeof(SessionGrantFrame) == 16);

struct SessionEndFrame {
    core::FrameHead head{core::FrameKind::session_end, 0, 0, sizeof(SessionEndFrame)};
};
static_assert(sizeof(SessionEndFrame) == 8);

// Client to server after a session was resumed: queries the status of a call. For an answered call
// the server sends the reply again, for other calls a CallStatusFrame.
struct CallQueryFrame {
    core::FrameHead head{core::FrameKind::call_query, 0, 0, sizeof(CallQueryFrame)};
    WireCallId call;
};
static_assert(sizeof(CallQueryFrame) == 16);

enum class CallStatus : std::uint16_t {
    not_received,  // The number may be used again.
    executing,     // The reply will follow.
};
struct CallStatusFrame {
    core::FrameHead head{core::FrameKind::call_status, 0, 0, sizeof(CallStatusFrame)};
    WireCallId call;
};
static_assert(sizeof(CallStatusFrame) == 16);

constexpr std::optional<std::string_view> why_no_session(core::FrameHead head) {
    if (head.bytes != sizeof(SessionFrame)) return "a session of the wrong size";
    if ((head.flags & ~resume_flag) != 0 || head.aux != 0) return "a session of a later version";
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_session_grant(core::FrameHead head) {
    if (head.bytes != sizeof(SessionGrantFrame)) return "a grant of slots of the wrong size";
    if (head.flags != 0 || head.aux > static_cast<std::uint16_t>(SessionReply::ended)) {
        return "a grant of slots of a later version";
    }
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_session_end(core::FrameHead head) {
    if (head.bytes != sizeof(SessionEndFrame)) return "an end of a session of the wrong size";
    if (head.flags != 0 || head.aux != 0) return "an end of a session of a later version";
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_call_query(core::FrameHead head) {
    if (head.bytes != sizeof(CallQueryFrame)) return "a call_query of the wrong size";
    if (head.flags != 0 || head.aux != 0) return "a call_query of a later version";
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_call_status(core::FrameHead head) {
    if (head.bytes != sizeof(CallStatusFrame)) return "a call_status of the wrong size";
    if (head.flags != 0 || head.aux > static_cast<std::uint16_t>(CallStatus::executing)) {
        return "a call_status of a later version";
    }
    return std::nullopt;
}

}  // namespace weft::rpc
