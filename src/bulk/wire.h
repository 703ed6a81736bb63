// Wire form of the grants that transports without access checks need: an initiator requests a grant
// before it accesses a range, and returns it afterwards. A rendezvous body brings a grant with it,
// on every transport. docs/wire-format.md.
#pragma once

#include <cstdint>

#include <weft/region.h>

#include "core/frame.h"
#include "na/provider.h"

namespace weft::bulk {

// Requests access to a range.
struct OpenFrame {
    core::FrameHead head{core::FrameKind::bulk_open, 0, 0, 64};
    std::uint32_t transfer_slot = 0;  // Echoed in the grant.
    std::uint32_t transfer_generation = 0;
    std::uint8_t ref[RegionRef::wire_bytes] = {};
};
static_assert(sizeof(OpenFrame) == 64);

// Of the reason of a refused grant, which follows the frame.
inline constexpr std::size_t grant_text_bytes_max = 256;

// The reply: head.aux is the code; for ok the fabric's key and the number of the grant. A refusal
// carries the reason as text behind the frame.
struct GrantFrame {
    core::FrameHead head{core::FrameKind::bulk_grant, 0, 0, 0};
    std::uint32_t transfer_slot = 0;
    std::uint32_t transfer_generation = 0;
    na::FabricKey fabric;
    std::uint64_t grant = 0;
};
static_assert(sizeof(GrantFrame) == 40);

// Returns a grant: the initiator does not access the range any more.
struct CloseFrame {
    core::FrameHead head{core::FrameKind::bulk_close, 0, 0, 16};
    std::uint64_t grant = 0;
};
static_assert(sizeof(CloseFrame) == 16);

// Revokes a grant: the owner waits for the close. Sent to the transfer that requested the grant;
// the grant of a rendezvous is not revoked.
struct RevokeFrame {
    core::FrameHead head{core::FrameKind::bulk_revoke, 0, 0, 24};
    std::uint64_t grant = 0;
    std::uint32_t transfer_slot = 0;
    std::uint32_t transfer_generation = 0;
};
static_assert(sizeof(RevokeFrame) == 24);

// Bytes for a range of the receiver, which validates and copies them itself: a small put without a
// reply of its own, because the reply of its call follows. The bytes are behind the frame.
struct DataFrame {
    core::FrameHead head{core::FrameKind::bulk_data, 0, 0, 0};
    std::uint8_t ref[RegionRef::wire_bytes] = {};  // Exactly their range, with write access.
    std::uint64_t call = 0;  // The receiver's id of the call, as in its request.
};
static_assert(sizeof(DataFrame) == 64);

// In a frame of a call, for a body that is too large for a message: the range from which the
// receiver fetches the body. The receiver returns the grant by a bulk_close, on every transport.
struct RendezvousBody {
    std::uint8_t ref[RegionRef::wire_bytes] = {};
    na::FabricKey fabric;     // Zeroes where the transport checks each access.
    std::uint64_t grant = 0;  // 0: the sender's memory can't be reached over this transport.
};
static_assert(sizeof(RendezvousBody) == 72);

}  // namespace weft::bulk
