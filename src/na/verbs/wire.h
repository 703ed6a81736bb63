// The messages between two ends of a verbs connection besides core's frames: docs/wire-format.md
// has the tables.
//
// The private data of rdma_cm has 56 bytes, so each side's hello (na/hello.h) is the first message
// of the connection. Every message is a SEND with 32 bits of immediate data: its kind, its sender,
// and how many messages of the other side have been taken since the last one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "na/hello.h"

namespace weft::na::verbs {

enum class Kind : std::uint8_t {
    data = 0,        // Frames of core.
    hello = 1,       // The first one of each side.
    credit = 2,      // Empty: the immediate is all.
    bye = 3,         // Empty: the sender has closed the connection.
    queue_pair = 4,  // A QueuePairMessage.
};
inline constexpr std::uint32_t kinds = 5;

// The immediate: kind, then the receiver's index of the sender, then credits.
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
// nullopt: a kind that this version does not support.
constexpr std::optional<Immediate> decode_immediate(std::uint32_t bits) {
    const std::uint32_t kind = bits >> (index_bits + credit_bits);
    if (kind >= kinds) return std::nullopt;
    return Immediate{static_cast<Kind>(kind), bits >> credit_bits & (indices_max - 1),
                     bits & credits_max};
}

// The private data of a request to connect, and of its acceptance.
struct ConnectData {
    Incarnation incarnation;
    std::uint32_t index = 0;    // The index in the other side's immediates.
    std::uint32_t credits = 0;  // Messages that the other side may send before it gets more.
    std::uint16_t wanted = 0;   // As Hello::wanted; Hello::context.
    std::uint16_t context = 0;
};
inline constexpr std::size_t connect_data_bytes = 4 + 2 + 2 + 16 + 4 + 4 + 2;
static_assert(connect_data_bytes <= 56);

// Requires: to.size() >= connect_data_bytes. Returns the bytes written.
std::size_t encode(const ConnectData& connect_data, Bytes to);
// Errors: as decode_hello().
Result<ConnectData> decode_connect_data(ByteView bytes);

// The private data of a rejection: a code and a text.
inline constexpr std::size_t rejection_bytes_max = 148;
// Requires: to.size() >= rejection_bytes_max. Returns the bytes written.
std::size_t encode_rejection(const Status& why, Bytes to);
// nullopt: not a rejection by weft.
std::optional<Status> decode_rejection(ByteView bytes);

// Messages about the other queue pairs, for one side's puts and gets.
inline constexpr std::uint32_t queue_pairs_max = 2;
struct QueuePairMessage {
    enum class Type : std::uint32_t {
        request = 0,    // The sender's queue pair; an earlier one in its place is destroyed.
        reply = 1,      // The owner's queue pair.
        refusal = 2,    // The owner can't have one; aux is a Code.
        destroyed = 3,  // The sender's queue pair is destroyed; there is no reply.
    };
    Type type = Type::request;
    // The requester's attempts, times queue_pairs_max, plus its queue pair: a reply repeats it.
    std::uint32_t number = 0;
    std::uint32_t qp_number = 0;
    std::uint32_t sequence = 0;  // Of the first packet.
    std::uint32_t reads = 0;     // That the sender may have in flight, or accepts at once.
    std::uint32_t aux = 0;
};
inline constexpr std::size_t queue_pair_message_bytes = 6 * 4;
inline constexpr std::uint32_t packet_numbers = 1u << 24;  // The same for queue pairs.
std::size_t encode(const QueuePairMessage& word, Bytes to);
std::optional<QueuePairMessage> decode_queue_pair_message(ByteView bytes);

}  // namespace weft::na::verbs
