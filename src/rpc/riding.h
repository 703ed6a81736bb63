// Small bulk that rides in the messages of its call: what the client offers for reading is copied
// behind the body of its request, and what the handler puts leaves ahead of the reply
// (bulk::DataFrame). Either way a round trip is saved; what does not fit goes as bulk always does.
#pragma once

#include <optional>
#include <vector>

#include <weft/channel.h>
#include <weft/region.h>

#include "base/user_memory.h"
#include "na/arena.h"
#include "rpc/header.h"

namespace weft::rpc {

// Of a region, in a message.
inline constexpr std::size_t riding_bytes_max = 8 * 1024;

// The end of a request with riding_flag, behind the body and the bytes that ride.
struct RidingTail {
    std::uint8_t ref[RegionRef::wire_bytes] = {};  // At most riding_bytes_max long.
    std::uint32_t bytes = 0;  // That ride: all of the reference's; 0 when it is not for reading.
    std::uint32_t reserved = 0;
};
static_assert(sizeof(RidingTail) == riding_tail_bytes);

// A request with what rides in it. Lifetime: the frame's.
struct RidingRequest {
    ByteView body;
    RegionRef ref;
    ByteView bytes;
};
// Judges bytes of a peer. Requires: why_no_request() finds nothing. nullopt: it makes no sense.
std::optional<RidingRequest> decode_riding(ByteView frame);

// A body, with what rides behind it, as the client writes it into a request's frame.
class RidingBody {
  public:
    // `bytes`: the memory of `ref`, or none when it is not for reading.
    RidingBody(const BodyWriter& body, const RegionRef& ref, ByteView bytes);
    std::size_t size() const;
    // For a request with riding_flag. Lifetime: this one's.
    BodyWriter writer();

  private:
    static void write(void* object, std::byte* to);

    const BodyWriter& body_;
    const RegionRef& ref_;
    const ByteView bytes_;
};

// Memory of the program as it is copied into a message: that of the arena where it is, other memory
// by way of a copy that the kernel made (base/user_memory.h).
class RidingCopy {
  public:
    // Empty: it can't be read. Requires: at most riding_bytes_max. Lifetime: this one's.
    ByteView readable(const na::Arena& arena, ByteView memory) {
        if (arena.offset_of(memory)) return memory;
        if (!base::copy_from_user(memory, bytes_)) return {};
        return {bytes_, memory.size()};
    }

  private:
    std::byte bytes_[riding_bytes_max];
};

// What rides with a call that is in its handler.
class Rider {
  public:
    explicit Rider(const RidingRequest& request)
        : ref_(request.ref), bytes_(request.bytes.begin(), request.bytes.end()) {}

    // Serve a transfer of the handler, when all of it is in the range that rides; false otherwise.
    bool get(const na::Arena& arena, const RegionRef& from, std::uint64_t offset, Bytes to) const;
    bool may_put(const RegionRef& to, std::uint64_t offset, std::size_t bytes) const;
    // From here on get() has them. Requires: may_put().
    void put(const RegionRef& to, std::uint64_t offset, ByteView from);

    // A transfer that goes as bulk touches bytes that ride, or may.
    bool overlaps(const RegionRef& range, std::uint64_t offset, std::size_t bytes) const;
    // A put has ridden: its bytes are at the client only with the reply.
    bool has_put() const { return has_put_; }
    std::size_t bytes() const { return bytes_.size(); }

  private:
    bool is_same_region(const RegionRef& range) const;
    std::optional<std::size_t> place_of(const RegionRef& range, std::uint64_t offset,
                                        std::size_t bytes, Access access) const;

    const RegionRef ref_;
    std::vector<std::byte> bytes_;
    bool has_put_ = false;
};

}  // namespace weft::rpc
