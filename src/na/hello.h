// The first bytes that both ends of a connection exchange, on every transport: the sender's
// address, incarnation and limits. docs/wire-format.md has the table.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/codec.h"
#include "na/provider.h"

namespace weft::na {

inline constexpr std::uint32_t wire_magic = 0x74666577;  // "weft"
inline constexpr std::uint16_t wire_version = 0;

// The head of the first message of each side. `what`: for error texts, "hello" or "request".
// Errors, with the reason as text: FAILED_PRECONDITION for another version, DATA_LOSS for garbage.
// `wanted`: as Hello::wanted.
void encode_head(const Incarnation& incarnation, std::uint16_t wanted, base::Writer& out);
Status decode_head(base::Reader& in, std::string_view what, Incarnation& incarnation,
                   std::uint16_t& wanted);

// What a side understands besides version 0 of the wire. A peer is sent nothing of a feature that
// its hello does not list.
namespace feature {
// Hello::wanted, the item with the contexts, and the notice that a connection was passed on.
inline constexpr std::uint64_t contexts = 1;
}  // namespace feature
inline constexpr std::uint64_t own_features = feature::contexts;

// Of a runtime.
inline constexpr std::uint16_t contexts_max = 64;

struct Hello {
    Incarnation incarnation;
    std::uint32_t message_bytes_max = 0;
    std::uint32_t eager_bytes_max = 0;
    std::string uri;           // The sender's own address; may be empty. At most 256 bytes.
    std::uint16_t wanted = 0;  // encode_wanted(). 0, and a context that the receiver lacks: any.
    std::uint64_t features = 0;
    std::uint16_t contexts = 1;  // Of the sender's runtime: 1 to contexts_max.
    std::uint16_t context = 0;   // The sender's; below `contexts`.
};

// The receiver's context that a connection is meant for: `number` is its number plus 1; 0: any.
// `life`: of the receiver in which it has a session of the sender; nullptr: the program names it.
std::uint16_t encode_wanted(std::uint16_t number, const Incarnation* life);
struct Wanted {
    std::uint16_t number = 0;  // Plus 1; 0: any.
    bool has_session = false;
};
// Any context, if the session is of another life than `own`; but of one in 255.
Wanted decode_wanted(std::uint16_t wanted, const Incarnation& own);

// The largest header in front of a call's body: rpc/header.h.
inline constexpr std::uint32_t call_header_bytes_max = 32;
// The items behind the address: kind and length, then a u64; kind and length, then two u16.
inline constexpr std::size_t hello_items_bytes_max = (4 + 8) + (4 + 4);
inline constexpr std::size_t hello_bytes_max =
    4 + 2 + 2 + 16 + 4 + 4 + 2 + 256 + hello_items_bytes_max;

// Of an endpoint that listens at `address`, unless it announces another one.
Hello own_hello(const EndpointParts& parts, const Limits& limits, const std::string& address);

// Requires: to.size() >= hello_bytes_max. Returns the bytes written.
std::size_t encode(const Hello& hello, Bytes to);

// Errors: as decode_head().
Result<Hello> decode_hello(ByteView bytes);

// Fills `info` from a peer's hello. The smaller limits of both sides apply.
void apply_hello(PeerInfo& info, const Hello& hello, const Limits& ours);

// Whether base::printable() leaves the text unchanged: a peer's text ends up in logs and on
// terminals.
bool is_printable(std::string_view text);

// The code of a peer's refusal. A code that is no failure becomes UNAVAILABLE; so does
// UNIMPLEMENTED, which an endpoint returns only for an address that it can't reach itself.
Code code_of_refusal(unsigned code);

// The code with which a listener refuses a connection for which it has no room now.
inline constexpr Code busy_code = Code::aborted;
// The listener is alive, and a later attempt may succeed: it was busy, or this side took too long.
constexpr bool is_retryable(Code refusal) {
    return refusal == busy_code || refusal == Code::deadline_exceeded;
}

}  // namespace weft::na
