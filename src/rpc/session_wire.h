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

// What a client calls its session: random bits that only one incarnation of a server is ever told.
struct SessionId {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const SessionId&, const SessionId&) = default;
};

// What both sides may count on before a grant arrives.
inline constexpr std::uint32_t slots_at_first = 64;
inline constexpr std::uint32_t slots_max = 1024;

// Client to server, before the first request of a connection.
inline constexpr std::uint8_t resume_flag = 1;
struct SessionFrame {
    core::FrameHead head{core::FrameKind::session, 0, 0, sizeof(SessionFrame)};
    SessionId id;
};
static_assert(sizeof(SessionFrame) == 24);

// So long a client looks for a server that it lost, of which it had heard nothing for `silence`
// before: it knows within 3 s that the server can't be reached. A server that ends waits as long
// for a client that it lost.
inline constexpr Duration search_max = 1s;
inline constexpr Duration search_min = 50ms;
inline constexpr Duration unreachable_max = 2900ms;
inline Duration search_time(Duration silence) {
    return std::clamp(unreachable_max - silence, search_min, search_max);
}

// Server to client: the answer to a session frame, and again whenever the grant changes.
enum class Verdict : std::uint16_t {
    granted,  // Begun, or the grant changed.
    resumed,  // Known: its calls may be asked for.
    expired,  // Not known here: nothing is known of its calls either.
    full,     // No room for a session now.
    ended,    // The server ends: of this session it begins nothing any more, and what it does not
              // answer, unless it is asked for, never ran.
};
struct GrantFrame {
    core::FrameHead head{core::FrameKind::grant, 0, 0, sizeof(GrantFrame)};
    std::uint32_t slots = 0;   // Slots below this exist.
    std::uint32_t window = 0;  // So many of them may be in use; what is under way goes on.
};
static_assert(sizeof(GrantFrame) == 16);

struct SessionEndFrame {
    core::FrameHead head{core::FrameKind::session_end, 0, 0, sizeof(SessionEndFrame)};
};
static_assert(sizeof(SessionEndFrame) == 8);

// Client to server after a session was resumed: what became of this call? A call that was answered
// is answered again; of others it is told how they stand.
struct AskFrame {
    core::FrameHead head{core::FrameKind::ask, 0, 0, sizeof(AskFrame)};
    WireCallId call;
};
static_assert(sizeof(AskFrame) == 16);

enum class Standing : std::uint16_t {
    never_came,  // And its number is free again.
    executing,   // Its reply will come.
};
struct ToldFrame {
    core::FrameHead head{core::FrameKind::told, 0, 0, sizeof(ToldFrame)};
    WireCallId call;
};
static_assert(sizeof(ToldFrame) == 16);

constexpr std::optional<std::string_view> why_no_session(core::FrameHead head) {
    if (head.bytes != sizeof(SessionFrame)) return "a session of the wrong size";
    if ((head.flags & ~resume_flag) != 0 || head.aux != 0) return "a session of a later version";
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_grant(core::FrameHead head) {
    if (head.bytes != sizeof(GrantFrame)) return "a grant of slots of the wrong size";
    if (head.flags != 0 || head.aux > static_cast<std::uint16_t>(Verdict::ended)) {
        return "a grant of slots of a later version";
    }
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_session_end(core::FrameHead head) {
    if (head.bytes != sizeof(SessionEndFrame)) return "an end of a session of the wrong size";
    if (head.flags != 0 || head.aux != 0) return "an end of a session of a later version";
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_ask(core::FrameHead head) {
    if (head.bytes != sizeof(AskFrame)) return "a question of the wrong size";
    if (head.flags != 0 || head.aux != 0) return "a question of a later version";
    return std::nullopt;
}
constexpr std::optional<std::string_view> why_no_told(core::FrameHead head) {
    if (head.bytes != sizeof(ToldFrame)) return "an answer of the wrong size";
    if (head.flags != 0 || head.aux > static_cast<std::uint16_t>(Standing::executing)) {
        return "an answer of a later version";
    }
    return std::nullopt;
}

}  // namespace weft::rpc
