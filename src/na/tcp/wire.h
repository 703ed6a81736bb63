// The wire format of tcp. docs/wire-format.md has the tables.
//
// A peer has two connections, so that calls do not queue behind transfers: the talk lane carries
// messages; the bulk lane, made when it is first needed, carries transfers. The talk lane is a
// stream of frames in the format of core, {u8 kind, u8 flags, u16 aux, u32 bytes}, each at a
// multiple of 8 bytes; kinds from 0xf0 on are this transport's own. The bulk lane opens with the
// same frames and then carries BulkHeads, each followed by its body.
#pragma once

#include <optional>
#include <string_view>

#include "base/codec.h"
#include "na/hello.h"

namespace weft::na::tcp {

struct StreamHead {
    std::uint8_t kind = 0;
    std::uint8_t flags = 0;
    std::uint16_t aux = 0;
    std::uint32_t bytes = 0;  // Of the whole frame, without the padding.
};
static_assert(sizeof(StreamHead) == 8);

constexpr std::size_t padded(std::size_t bytes) { return (bytes + 7) & ~std::size_t{7}; }

// Frames of this transport. A lane opens with hello or join; the answer is welcome or refusal.
enum class ControlKind : std::uint8_t {
    hello = 0xf0,      // Connector, talk lane: its hello.
    welcome = 0xf1,    // Acceptor: its hello and the ticket of a bulk lane; or, to a join, nothing.
    refusal = 0xf2,    // Acceptor: the reason.
    join = 0xf3,       // Connector, bulk lane: the ticket. `aux`: the acceptor's context, plus 1.
    want_bulk = 0xf4,  // Acceptor, talk lane: it has a transfer to make.
    bye = 0xf5,        // Talk lane: an orderly end follows.
    passed = 0xf6,     // Acceptor, talk lane: another context has the hello, and answers it.
};
inline constexpr std::uint8_t first_control = 0xf0;

// Lets a bulk lane join its talk lane: random, sent in the welcome.
struct Ticket {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const Ticket&, const Ticket&) = default;
};

// The most that a pending peer may send before it is identified.
inline constexpr std::size_t handshake_bytes_max = 512;
static_assert(sizeof(StreamHead) + sizeof(Ticket) + hello_bytes_max <= handshake_bytes_max);

// Write a whole frame, padding included; return its bytes. Require to.size() >=
// handshake_bytes_max.
std::size_t encode_hello(const Hello& hello, Bytes to);
std::size_t encode_welcome(const Ticket& ticket, const Hello& hello, Bytes to);
std::size_t encode_refusal(const Status& why, Bytes to);
// `context`: that of the acceptor's hello.
std::size_t encode_join(const Ticket& ticket, std::uint16_t context, Bytes to);
std::size_t encode_control(ControlKind control, Bytes to);  // Frames without a body.
bool is_control(ByteView frame, ControlKind control);

// Decode a whole handshake frame of any length. Errors: DATA_LOSS (garbage), FAILED_PRECONDITION
// (another version), or the peer's refusal.
struct Welcome {
    Ticket ticket;
    Hello hello;
};
Result<Hello> decode_hello_frame(ByteView frame);
Result<Ticket> decode_join(ByteView frame);
// The context that a join names, plus 1; 0: none. Requires: a frame with this kind.
std::uint16_t context_of_join(ByteView frame);
Result<Welcome> decode_welcome(ByteView frame);
Status decode_joined(ByteView frame);

// ---- bulk lane -------------------------------------------------------------------------------

enum class BulkOp : std::uint8_t {
    put = 1,   // `length` bytes of body for a region of the receiver.
    get = 2,   // Requests `length` bytes of a region of the receiver.
    data = 3,  // Answers a get: `length` bytes of body. A done follows.
    done = 4,  // Ends a put or a get: `code` is the result.
};

struct BulkHead {
    BulkOp op = BulkOp::done;
    std::uint8_t code = 0;      // done: a Code.
    std::uint8_t why = 0;       // done: a Refusal.
    std::uint8_t reserved = 0;  // Sent as 0, ignored.
    std::uint32_t region = 0;   // put, get.
    std::uint32_t generation = 0;
    std::uint32_t length = 0;  // put, get, data.
    std::uint64_t key = 0;     // put, get.
    std::uint64_t offset = 0;
    std::uint64_t transfer = 0;  // The initiator's id, repeated in data and done.
};
static_assert(sizeof(BulkHead) == 40);

// Why an access was refused, for the initiator's error text.
enum class Refusal : std::uint8_t {
    none,
    no_region,
    stale,
    revoked,
    key,
    not_readable,
    not_writable,
    range,
    unwritable,  // The owner's memory itself.
    unreadable
};
constexpr Code code_of(Refusal refusal) {
    if (refusal == Refusal::none) return Code::ok;
    return refusal < Refusal::unwritable ? Code::permission_denied : Code::failed_precondition;
}
const char* refusal_text(std::uint8_t refusal);

}  // namespace weft::na::tcp
