// Small bulk in the messages of its call. The bytes that the client offers for reading are copied
// behind the body of its request. The bytes that the handler puts are sent ahead of the reply
// (bulk::DataFrame). Either way a round trip is saved; other transfers go as bulk.
#pragma once

#include <optional>
#include <vector>

#include <weft/channel.h>
#include <weft/region.h>

#include "base/assert.h"
#include "base/user_memory.h"
#include "na/arena.h"
#include "rpc/header.h"

namespace weft::rpc {

// Of one region, in one message.
inline constexpr std::size_t inline_bulk_bytes_max = 8 * 1024;

// The end of a request with inline_bulk_flag, behind the body and the inline bytes.
struct InlineBulkTail {
    std::uint8_t ref[RegionRef::wire_bytes] = {};  // At most inline_bulk_bytes_max long.
    std::uint32_t bytes = 0;  // Inline bytes: ref's length; 0 if `ref` is not readable.
    std::uint32_t reserved = 0;
};
static_assert(sizeof(InlineBulkTail) == inline_bulk_tail_bytes);

// A request and its inline bulk. Lifetime: the frame's.
struct InlineBulkRequest {
    ByteView body;
    RegionRef ref;
    ByteView bytes;
};
// Validates bytes of a peer. Requires: why_no_request() returned nullopt. nullopt: invalid.
std::optional<InlineBulkRequest> decode_inline_bulk(ByteView frame);

// A body and its inline bulk, as the client writes them into a request's frame.
class InlineBulkBody {
  public:
    // `bytes`: the memory of `ref`, or empty when `ref` is not readable.
    InlineBulkBody(const BodyWriter& body, const RegionRef& ref, ByteView bytes);
    std::size_t size() const;
    // For a request with inline_bulk_flag. Lifetime: this object's.
    BodyWriter writer();

  private:
    static void write(void* object, std::byte* to);

    const BodyWriter& body_;
    const RegionRef& ref_;
    const ByteView bytes_;
};

// User memory, for copying into a message: memory of the arena is used in place, other memory
// through a copy that the kernel makes (base/user_memory.h).
class InlineBulkCopy {
  public:
    // Empty: `memory` is not readable. Requires: at most inline_bulk_bytes_max. Lifetime: this
    // object's.
    ByteView readable(const na::Arena& arena, ByteView memory) {
        if (arena.offset_of(memory)) return memory;
        WEFT_ASSERT(memory.size() <= sizeof bytes_);
        if (!base::copy_from_user(memory, bytes_)) return {};
        return {bytes_, memory.size()};
    }

  private:
    std::byte bytes_[inline_bulk_bytes_max];
};

// The inline bulk of a call in its handler.
class InlineBulk {
  public:
    explicit InlineBulk(const InlineBulkRequest& request)
        : ref_(request.ref), bytes_(request.bytes.begin(), request.bytes.end()) {}

    // get() and may_put() return whether the whole range of a handler's transfer is inline; get()
    // also copies it.
    bool get(const na::Arena& arena, const RegionRef& from, std::uint64_t offset, Bytes to) const;
    bool may_put(const RegionRef& to, std::uint64_t offset, std::size_t bytes) const;
    // From here on get() returns the new bytes. Requires: may_put().
    void put(const RegionRef& to, std::uint64_t offset, ByteView from);

    // True: a transfer that goes as bulk overlaps inline bytes, or may.
    bool overlaps(const RegionRef& range, std::uint64_t offset, std::size_t bytes) const;
    // An inline put was made: its bytes reach the client only with the reply.
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
