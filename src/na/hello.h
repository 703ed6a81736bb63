// The first bytes both ends of a connection exchange, on every transport: who is there, in which
// life, and what it can take. docs/wire-format.md has the table.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "na/provider.h"

namespace weft::na {

inline constexpr std::uint32_t wire_magic = 0x74666577;  // "weft"
inline constexpr std::uint16_t wire_version = 0;

struct Hello {
    Incarnation incarnation;
    std::uint32_t message_bytes_max = 0;
    std::uint32_t eager_bytes_max = 0;
    std::string uri;  // What the sender calls itself; may be empty. At most 256 bytes.
};
inline constexpr std::size_t hello_bytes_max = 4 + 2 + 2 + 16 + 4 + 4 + 2 + 256;

// Requires: to.size() >= hello_bytes_max. Returns the bytes written.
std::size_t encode(const Hello& hello, Bytes to);

// Errors: why the bytes are no hello of ours, in words: FAILED_PRECONDITION for another version,
// DATA_LOSS for garbage.
Result<Hello> decode_hello(ByteView bytes);

// What a peer's hello says of it, and what both sides can take: the smaller limits count.
void take_hello(PeerInfo& info, const Hello& hello, const Limits& ours);

// Text of a peer ends up in logs and on terminals: whether base::printable() leaves it as it is.
bool is_printable(std::string_view text);

// The code of a refusal, which the peer chose: UNAVAILABLE for what is no failure, and for
// UNIMPLEMENTED, which is an endpoint's own word for what it can't reach.
Code code_of_refusal(unsigned told);

// What a listener refuses a connection with for which it has no place just now.
inline constexpr Code busy_code = Code::aborted;
// The listener is alive, and a later attempt may succeed: it was busy, or we were too slow for it.
constexpr bool may_be_tried_again(Code refusal) {
    return refusal == busy_code || refusal == Code::deadline_exceeded;
}

}  // namespace weft::na
