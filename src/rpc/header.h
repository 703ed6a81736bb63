// Wire form of calls. docs/wire-format.md has the tables, tests/vectors the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <weft/status.h>
#include <weft/time.h>

#include "bulk/wire.h"
#include "core/frame.h"
#include "na/hello.h"

namespace weft::rpc {

// Client and server measure the time of one call in so many per slot, so that the other calls pay
// two instructions for it.
inline constexpr std::uint32_t calls_per_sample = 64;

// A call in flight: a slot of its session, and the number of the call in that slot. The next number
// also acknowledges the reply before it.
struct WireCallId {
    std::uint32_t slot = 0;
    std::uint32_t sequence = 0;
};

// Of a request or reply: a bulk::RendezvousBody replaces the body and names its location.
inline constexpr std::uint8_t rendezvous_flag = 1;

// Of a request: inline bulk follows its body (inline_bulk.h).
inline constexpr std::uint8_t inline_bulk_flag = 2;
inline constexpr std::size_t inline_bulk_tail_bytes = 56;

// Of a request: running it twice has the effect of running it once, so its reply need not be kept.
inline constexpr std::uint8_t idempotent_flag = 4;

// Of a failed reply: four bytes precede its text, the microseconds that the client should wait
// before it retries.
inline constexpr std::uint8_t pushback_flag = 2;
inline constexpr std::size_t pushback_bytes = 4;

// 32 bytes; then `head.aux` bytes of flagged extensions (none defined in version 0), then the body.
struct RequestHeader {
    core::FrameHead head{core::FrameKind::request, 0, 0, 0};
    WireCallId call;
    std::uint32_t remaining_us = 0;  // To the deadline, at transmission; remaining_unbounded: none.
    std::uint32_t reserved = 0;      // Room for a view's digest or a trace; 0 in version 0.
    std::uint64_t method = 0;        // method_hash of the full name.
};
static_assert(sizeof(RequestHeader) == na::call_header_bytes_max);
inline constexpr std::uint32_t remaining_unbounded = ~std::uint32_t{0};

// 16 bytes; head.aux = code | effect << 8 | stage << 12. Then the body: the reply, or for a code
// other than ok a text for users.
struct ReplyHeader {
    core::FrameHead head{core::FrameKind::reply, 0, 0, 0};
    WireCallId call;
};
static_assert(sizeof(ReplyHeader) == 16);

// Headers are stored field by field: a struct that is built on the stack and then copied stalls on
// its own stores.
inline void store_head(std::byte* to, core::FrameKind kind, std::uint32_t flags, std::uint16_t aux,
                       std::size_t bytes, WireCallId call) {
    base::store(to, static_cast<std::uint32_t>(kind) | flags << 8 | std::uint32_t{aux} << 16);
    base::store(to + 4, static_cast<std::uint32_t>(bytes));
    base::store(to + 8, call.slot);
    base::store(to + 12, call.sequence);
}
inline void store_request(std::byte* to, std::size_t bytes, std::uint32_t flags, WireCallId call,
                          std::uint32_t remaining_us, std::uint64_t method) {
    store_head(to, core::FrameKind::request, flags, 0, bytes, call);
    base::store(to + offsetof(RequestHeader, remaining_us), std::uint64_t{remaining_us});
    base::store(to + offsetof(RequestHeader, method), method);
}
inline void store_reply(std::byte* to, std::size_t bytes, std::uint16_t aux, WireCallId call) {
    store_head(to, core::FrameKind::reply, 0, aux, bytes, call);
}

// Sizes of frames with a rendezvous body: 104 and 88 bytes.
inline constexpr std::size_t rendezvous_request_bytes =
    sizeof(RequestHeader) + sizeof(bulk::RendezvousBody);
inline constexpr std::size_t rendezvous_reply_bytes =
    sizeof(ReplyHeader) + sizeof(bulk::RendezvousBody);
inline void mark_rendezvous(std::byte* frame) {
    frame[offsetof(core::FrameHead, flags)] |= std::byte{rendezvous_flag};
}
constexpr bool is_rendezvous(core::FrameHead head) {
    return (head.flags & ~idempotent_flag) == rendezvous_flag;
}
inline void mark_inline_bulk(std::byte* frame) {
    frame[offsetof(core::FrameHead, flags)] |= std::byte{inline_bulk_flag};
}
constexpr bool has_inline_bulk(core::FrameHead head) {
    return (head.flags & ~idempotent_flag) == inline_bulk_flag;
}

struct CancelHeader {
    core::FrameHead head{core::FrameKind::cancel, 0, 0, sizeof(ReplyHeader)};
    WireCallId call;
};
static_assert(sizeof(CancelHeader) == 16);

inline constexpr std::size_t error_text_bytes_max = 1024;

constexpr std::uint16_t pack(Code code, Effect effect, Stage stage) {
    return static_cast<std::uint16_t>(static_cast<unsigned>(code) |
                                      static_cast<unsigned>(effect) << 8 |
                                      static_cast<unsigned>(stage) << 12);
}

struct ReplyOutcome {
    Code code;
    Effect effect;
    Stage stage;
};
// nullopt: not a valid outcome.
constexpr std::optional<ReplyOutcome> unpack(std::uint16_t aux) {
    const unsigned code = aux & 0xff, effect = aux >> 8 & 0xf, stage = aux >> 12;
    if (code > code_max || effect > 2 || stage > 4) return std::nullopt;
    return ReplyOutcome{static_cast<Code>(code), static_cast<Effect>(effect),
                        static_cast<Stage>(stage)};
}

// The kind and the checks of why_no_request() in short, for the hot path.
constexpr bool is_request(core::FrameHead head) {
    constexpr std::uint32_t either = ~(std::uint32_t{idempotent_flag} << 8);
    return (core::first_word_of(head) & either) ==
               core::first_word_of({core::FrameKind::request, 0, 0, 0}) &&
           head.bytes >= sizeof(RequestHeader);
}

// Why a frame is not a valid request; nullopt: it is valid.
constexpr std::optional<std::string_view> why_no_request(core::FrameHead head) {
    if (head.bytes < sizeof(RequestHeader)) return "a request shorter than its header";
    if ((head.flags & ~idempotent_flag) != 0 && !is_rendezvous(head) && !has_inline_bulk(head)) {
        return "a request with flags of a later version";
    }
    if (has_inline_bulk(head) && head.bytes < sizeof(RequestHeader) + inline_bulk_tail_bytes) {
        return "a request too short for inline bulk";
    }
    if (head.aux != 0) return "a request with extensions of a later version";
    if (is_rendezvous(head) && head.bytes != rendezvous_request_bytes) {
        return "a rendezvous request of the wrong size";
    }
    return std::nullopt;
}

// A reply with ok and nothing else. The comparison includes the kind.
inline constexpr std::uint16_t plain_ok = pack(Code::ok, Effect::applied, Stage::executing);
constexpr bool is_plain_reply(core::FrameHead head) {
    return core::first_word_of(head) ==
               core::first_word_of({core::FrameKind::reply, 0, plain_ok, 0}) &&
           head.bytes >= sizeof(ReplyHeader);
}

constexpr std::optional<std::string_view> why_no_reply(core::FrameHead head) {
    if (head.bytes < sizeof(ReplyHeader)) return "a reply shorter than its header";
    if (head.flags != 0 && head.flags != rendezvous_flag && head.flags != pushback_flag) {
        return "a reply with flags of a later version";
    }
    if (!unpack(head.aux)) return "a reply with an impossible outcome";
    if (head.flags == pushback_flag && (head.bytes < sizeof(ReplyHeader) + pushback_bytes ||
                                        (head.aux & 0xff) == static_cast<unsigned>(Code::ok))) {
        return "a reply that is pushed back for no reason";
    }
    if (is_rendezvous(head) && (head.bytes != rendezvous_reply_bytes || head.aux != plain_ok)) {
        return "a malformed rendezvous reply";
    }
    return std::nullopt;
}

constexpr std::optional<std::string_view> why_no_cancel(core::FrameHead head) {
    if (head.bytes != sizeof(CancelHeader)) return "a cancel of the wrong size";
    if (head.flags != 0) return "a cancel with flags of a later version";
    return std::nullopt;
}

constexpr std::uint32_t to_remaining_us(TimePoint now, TimePoint deadline) {
    constexpr std::uint32_t most = remaining_unbounded - 1;
    // One comparison for the usual case: a deadline that passed is a huge number here.
    const auto ns = static_cast<std::uint64_t>((deadline - now).count());
    if (ns < std::uint64_t{most} * 1000) [[likely]] {
        return static_cast<std::uint32_t>(ns / 1000);
    }
    if (deadline == never) return remaining_unbounded;
    return deadline <= now ? 0 : most;
}

constexpr TimePoint to_deadline(TimePoint now, std::uint32_t remaining_us) {
    if (remaining_us == remaining_unbounded) return never;
    return now + std::chrono::microseconds(remaining_us);  // At most 72 minutes.
}

}  // namespace weft::rpc
