// What travels between the endpoints of a simulated network.
#pragma once

#include <memory>
#include <string>

#include "base/slot_table.h"
#include "na/provider.h"
#include "na/sim/links.h"

namespace weft::na::sim {

using NodeId = base::SlotId;
using TransferId = base::SlotId;

// Bytes under way, never moved while a view of them is out.
struct Parcel {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t size = 0;
    std::size_t room = 0;

    static Parcel make(std::size_t size) {
        return {std::make_unique_for_overwrite<std::byte[]>(size), size, size};
    }
    explicit operator bool() const { return bytes != nullptr; }
    ByteView view() const { return {bytes.get(), size}; }
};

enum class Kind : std::uint8_t {
    connect,      // `text`: the name sought; `parcel`: hello.
    accept,       // `parcel`: hello.
    message,      // `parcel`.
    down,         // `code`, `text`. Also answers a refused connect.
    rma_put,      // To the owner: a piece; `parcel`: RmaHead and bytes.
    rma_request,  // To the owner, for a get; `parcel`: RmaHead.
    rma_data,     // To the initiator: a piece of a get; `parcel`: bytes.
    rma_answer,   // To the initiator: how it ended; `code`, `text`.
    repeated,     // A packet that came before.
    // Within one endpoint:
    writable,
    no_answer,   // To who connects: time is up.
    rma_next,    // To an initiator: the next piece of a put may leave.
    rma_more,    // To an owner: the next piece of a get may leave.
    fence_over,  // To an owner: what is under way is refused from here on.
};
constexpr bool is_local(Kind kind) { return kind >= Kind::writable; }

// As tcp has a connection for bulk, and RDMA an order of its own: each lane of a connection is
// ordered in itself.
enum class Lane : std::uint8_t { talk, bulk };
inline constexpr std::size_t lanes = 2;

// What an initiator says of each access, and where in it the bytes of a piece belong.
struct RmaHead {
    std::uint32_t region = 0;
    std::uint32_t generation = 0;
    std::uint64_t key = 0;
    std::uint64_t offset = 0;  // Into the region.
    std::uint64_t bytes = 0;   // Of the whole access.
    std::uint64_t at = 0;      // Of this piece, in the access.
};

// What happens to cargo at its next instant.
enum class Fate : std::uint8_t { arrives, arrives_damaged, is_resent, hangs_up };

// One thing on its way. `to_peer` is what the receiver calls the sender, `from_peer` the reverse.
struct Cargo {
    Kind kind = Kind::message;
    Code code = Code::ok;
    NodeId from;
    NodeId to;
    PeerId from_peer;
    PeerId to_peer;
    TransferId transfer;
    Parcel parcel;
    std::string text;
    // Between hosts:
    HostId from_host = 0;
    HostId to_host = 0;
    Fate fate = Fate::arrives;
    Lane lane = Lane::talk;
    std::uint16_t attempts = 0;
    TimePoint since{};           // Sent for the first time.
    std::uint64_t sequence = 0;  // Of its lane and direction, from 1; 0: in no order.
};

}  // namespace weft::na::sim
