// Wire form of the grants that transports without checks of their own need: before an initiator
// touches a range it asks the owner, and when it is done it says so. docs/wire-format.md.
#pragma once

#include <cstdint>

#include <weft/region.h>

#include "core/frame.h"
#include "na/provider.h"

namespace weft::bulk {

// May I access this range?
struct OpenFrame {
    core::FrameHead head{core::FrameKind::bulk_open, 0, 0, 64};
    std::uint32_t transfer_slot = 0;  // Echoed in the grant.
    std::uint32_t transfer_generation = 0;
    std::uint8_t ref[RegionRef::wire_bytes] = {};
};
static_assert(sizeof(OpenFrame) == 64);

// The answer: head.aux is the code; for ok the fabric's key, and the number of the grant. A refusal
// carries the reason as text behind the frame.
struct GrantFrame {
    core::FrameHead head{core::FrameKind::bulk_grant, 0, 0, 0};
    std::uint32_t transfer_slot = 0;
    std::uint32_t transfer_generation = 0;
    na::FabricKey fabric;
    std::uint64_t grant = 0;
};
static_assert(sizeof(GrantFrame) == 40);

// Nothing of mine touches the range any more.
struct CloseFrame {
    core::FrameHead head{core::FrameKind::bulk_close, 0, 0, 16};
    std::uint64_t grant = 0;
};
static_assert(sizeof(CloseFrame) == 16);

// Stop: the owner wants its memory back, and waits for the close. To the transfer that asked for
// the grant; a grant that was lent is not revoked.
struct RevokeFrame {
    core::FrameHead head{core::FrameKind::bulk_revoke, 0, 0, 24};
    std::uint64_t grant = 0;
    std::uint32_t transfer_slot = 0;
    std::uint32_t transfer_generation = 0;
};
static_assert(sizeof(RevokeFrame) == 24);

// Bytes for a range of the receiver, which judges and copies them itself: a small put that needs no
// answer, because the reply of that call follows. The bytes are behind the frame.
struct DataFrame {
    core::FrameHead head{core::FrameKind::bulk_data, 0, 0, 0};
    std::uint8_t ref[RegionRef::wire_bytes] = {};  // To exactly them, for writing.
    std::uint64_t call = 0;                        // As the receiver named it in its request.
};
static_assert(sizeof(DataFrame) == 64);

// In a frame of a call, for a body that is too large for a message: where its sender lends it. The
// receiver answers with a bulk_close when it is done with it, on every transport.
struct LentBody {
    std::uint8_t ref[RegionRef::wire_bytes] = {};
    na::FabricKey fabric;     // Zeroes where each access is judged anyway.
    std::uint64_t grant = 0;  // 0: the sender's memory can't be reached over this transport.
};
static_assert(sizeof(LentBody) == 72);

}  // namespace weft::bulk
