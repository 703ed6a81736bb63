// Packets between the endpoints of a simulated network.
#pragma once

#include <memory>
#include <string>

#include "base/slot_table.h"
#include "na/provider.h"
#include "na/sim/links.h"

namespace weft::na::sim {

using NodeId = base::SlotId;
using RmaId = base::SlotId;

// Bytes in flight, never moved while a view of them exists.
struct Payload {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
    std::size_t room = 0;

    static Payload make(std::size_t size) {
        return {std::make_unique_for_overwrite<std::byte[]>(size), size, size};
    }
    explicit operator bool() const { return bytes != nullptr; }
    ByteView view() const { return {bytes.get(), size}; }
};

enum class Kind : std::uint8_t {
    connect,      // `text`: the requested name; `payload`: hello.
    accept,       // `payload`: hello.
    message,      // `payload`.
    down,         // `code`, `text`. Also answers a refused connect.
    rma_put,      // To the owner: a piece; `payload`: RmaHead and bytes.
    rma_request,  // To the owner, for a get; `payload`: RmaHead.
    rma_data,     // To the initiator: a piece of a get; `payload`: bytes.
    rma_reply,    // To the initiator: the result; `code`, `text`.
    repeated,     // A duplicate of an earlier packet.
    // Within one endpoint:
    writable,
    connect_timeout,  // To the connector: time is up.
    rma_next,         // To an initiator: the next piece of a put may leave.
    rma_more,         // To an owner: the next piece of a get may leave.
    fence_over,       // To an owner: accesses in flight are refused from here on.
};
constexpr bool is_local(Kind kind) { return kind >= Kind::writable; }

// Each stream of a connection is ordered in itself, as tcp has a connection for bulk, and RDMA an
// order of its own.
enum class Stream : std::uint8_t { messages, bulk };
inline constexpr std::size_t streams = 2;

// The head of each piece: the initiator's access, and the place of the piece in it.
struct RmaHead {
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    std::uint64_t offset = 0;  // Into the region.
    std::uint64_t bytes = 0;   // Of the whole access.
    std::uint64_t at = 0;      // Of this piece, in the access.
};

// What happens to a packet at its next instant.
enum class Delivery : std::uint8_t { arrives, arrives_damaged, is_resent, hangs_up };

// One packet in flight. `to_peer` is the receiver's id of the sender, `from_peer` the reverse.
struct Packet {
    Kind kind = Kind::message;
    Code code = Code::ok;
    NodeId from;
    NodeId to;
    PeerId from_peer;
    PeerId to_peer;
    RmaId transfer;
    Payload payload;
    std::string text;

    // Between hosts.
    HostId from_host = 0;
    HostId to_host = 0;
    Delivery delivery = Delivery::arrives;
    Stream stream = Stream::messages;
    std::uint16_t attempts = 0;
    TimePoint since{};           // When it was first sent.
    std::uint64_t sequence = 0;  // In its stream and direction, from 1; 0: unordered.
};

}  // namespace weft::na::sim
