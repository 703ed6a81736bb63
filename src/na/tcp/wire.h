// What travels on a tcp connection. docs/wire-format.md has the tables.
//
// A peer has two connections, so that calls do not queue behind transfers: the talk lane carries
// messages, the bulk lane, made when it is first needed, transfers. On the talk lane everything is
// a frame as core's are, {u8 kind, u8 flags, u16 aux, u32 bytes}, at a multiple of 8 bytes of the
// stream; kinds from 0xf0 on are this transport's own. The bulk lane opens with the same frames and
// carries BulkHeads after them, each followed by its body.
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

// Frames of this transport. A lane opens with hello or join and is answered by welcome or refusal.
enum class Signal : std::uint8_t {
    hello = 0xf0,    // Connector, talk lane: who it is.
    welcome = 0xf1,  // Acceptor: who it is, and the ticket of a bulk lane; or, to a join, nothing.
    refusal = 0xf2,  // Acceptor: why not.
    join = 0xf3,     // Connector, bulk lane: the ticket.
    want_bulk = 0xf4,  // Acceptor, talk lane: it has a transfer to make.
    bye = 0xf5,        // Talk lane: an orderly end follows.
};
inline constexpr std::uint8_t first_signal = 0xf0;

// What lets a bulk lane join its talk lane: handed out in a welcome, random.
struct Ticket {
    std::uint64_t high = 0;
    std::uint64_t low = 0;
    friend bool operator==(const Ticket&, const Ticket&) = default;
};

// All that a stranger may send before it is known.
inline constexpr std::size_t greeting_bytes_max = 512;
static_assert(sizeof(StreamHead) + sizeof(Ticket) + hello_bytes_max <= greeting_bytes_max);

// Write a whole frame, padding included; return its bytes. Require to.size() >= greeting_bytes_max.
std::size_t encode_hello(const Hello& hello, Bytes to);
std::size_t encode_welcome(const Ticket& ticket, const Hello& hello, Bytes to);
std::size_t encode_refusal(const Status& why, Bytes to);
std::size_t encode_join(const Ticket& ticket, Bytes to);
std::size_t encode_signal(Signal signal, Bytes to);  // Those without a body.

// What a whole greeting frame of any length says. Errors: DATA_LOSS (garbage), FAILED_PRECONDITION
// (another version), or the peer's refusal.
struct Welcome {
    Ticket ticket;
    Hello hello;
};
Result<Hello> decode_hello_frame(ByteView frame);
Result<Ticket> decode_join(ByteView frame);
Result<Welcome> decode_welcome(ByteView frame);
Status decode_joined(ByteView frame);

// ---- bulk lane -------------------------------------------------------------------------------

enum class BulkOp : std::uint8_t {
    put = 1,   // `length` bytes of body for a region of the receiver.
    get = 2,   // Asks for `length` bytes of a region of the receiver.
    data = 3,  // Answers a get: `length` bytes of body. A done follows.
    done = 4,  // Ends a put or a get: `code` tells how.
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
    std::uint64_t transfer = 0;  // The initiator's name for it, repeated in data and done.
};
static_assert(sizeof(BulkHead) == 40);

// Why an access was refused, for the other side's words.
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
const char* words(std::uint8_t refusal);

}  // namespace weft::na::tcp
