// What two ends of a connection over verbs tell each other besides core's frames:
// docs/wire-format.md has the tables.
//
// The private data of rdma_cm has 56 bytes, so each side's hello (na/hello.h) is the first message
// behind it. Every message is a SEND with 32 bits of immediate data, which say what it is, whose,
// and how many messages of the other side have been taken since the last one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "na/hello.h"

namespace weft::na::verbs {

enum class Kind : std::uint8_t {
    data = 0,    // Frames of core's.
    hello = 1,   // The first one of each side.
    credit = 2,  // Empty: the immediate is all.
    bye = 3,     // Empty: the sender has closed the connection.
    lane = 4,    // A LaneWord.
};
inline constexpr std::uint32_t kinds = 5;

// The immediate: kind, then the receiver's name of the sender, then credits.
struct Immediate {
    Kind kind = Kind::data;
    std::uint32_t index = 0;
    std::uint32_t credits = 0;
};
inline constexpr std::uint32_t index_bits = 16;
inline constexpr std::uint32_t credit_bits = 12;
inline constexpr std::uint32_t indices_max = 1u << index_bits;
inline constexpr std::uint32_t credits_max = (1u << credit_bits) - 1;

constexpr std::uint32_t encode(const Immediate& word) {
    return static_cast<std::uint32_t>(word.kind) << (index_bits + credit_bits) |
           word.index << credit_bits | word.credits;
}
// Nothing: a kind that this version does not know.
constexpr std::optional<Immediate> decode_immediate(std::uint32_t bits) {
    const std::uint32_t kind = bits >> (index_bits + credit_bits);
    if (kind >= kinds) return std::nullopt;
    return Immediate{static_cast<Kind>(kind), bits >> credit_bits & (indices_max - 1),
                     bits & credits_max};
}

// The private data of a request to connect, and of its acceptance.
struct Opening {
    Incarnation incarnation;
    std::uint32_t index = 0;    // What the other side is to put into its immediates.
    std::uint32_t credits = 0;  // Messages that it may send before it hears of more.
};
inline constexpr std::size_t opening_bytes = 4 + 2 + 2 + 16 + 4 + 4;
static_assert(opening_bytes <= 56);

// Requires: to.size() >= opening_bytes. Returns the bytes written.
std::size_t encode(const Opening& opening, Bytes to);
// Errors: as decode_hello().
Result<Opening> decode_opening(ByteView bytes);

// The private data of a rejection: a code and words.
inline constexpr std::size_t rejection_bytes_max = 148;
// Requires: to.size() >= rejection_bytes_max. Returns the bytes written.
std::size_t encode_rejection(const Status& why, Bytes to);
// Nothing: no rejection of ours.
std::optional<Status> decode_rejection(ByteView bytes);

// The queue pairs besides that of messages, for one side's puts and gets.
inline constexpr std::uint32_t lanes_most = 2;
struct LaneWord {
    enum class What : std::uint32_t {
        ask = 0,     // The sender's queue pair; whatever was there before is gone.
        answer = 1,  // The owner's.
        refuse = 2,  // The owner can't have one; aux is a Code.
        gone = 3,    // The sender's is no more, and nothing is answered.
    };
    What what = What::ask;
    // Of the asker's attempts, times lanes_most, and which of its lanes: an answer repeats it.
    std::uint32_t number = 0;
    std::uint32_t queue_pair = 0;
    std::uint32_t sequence = 0;  // The first packet's.
    std::uint32_t reads = 0;     // That the sender may have under way, or takes at once.
    std::uint32_t aux = 0;
};
inline constexpr std::size_t lane_word_bytes = 6 * 4;
inline constexpr std::uint32_t packet_numbers = 1u << 24;  // As many queue pairs.
std::size_t encode(const LaneWord& word, Bytes to);
std::optional<LaneWord> decode_lane_word(ByteView bytes);

}  // namespace weft::na::verbs
