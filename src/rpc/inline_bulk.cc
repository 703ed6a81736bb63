#include "rpc/inline_bulk.h"

#include <algorithm>
#include <cstring>

#include "base/assert.h"

namespace weft::rpc {

std::optional<InlineBulkRequest> decode_inline_bulk(ByteView frame) {
    WEFT_ASSERT(frame.size() >= sizeof(RequestHeader) + sizeof(InlineBulkTail));
    const ByteView all = frame.subspan(sizeof(RequestHeader));
    const auto tail = base::load<InlineBulkTail>(all.last(sizeof(InlineBulkTail)).data());
    const ByteView remaining = all.first(all.size() - sizeof(InlineBulkTail));
    const Result<RegionRef> ref =
        RegionRef::decode({reinterpret_cast<const std::byte*>(tail.ref), sizeof tail.ref});
    if (!ref || ref->length == 0 || ref->length > inline_bulk_bytes_max) return std::nullopt;
    const std::uint64_t expected = allows(ref->access, Access::read) ? ref->length : 0;
    if (tail.bytes != expected || tail.bytes > remaining.size()) return std::nullopt;
    return InlineBulkRequest{remaining.first(remaining.size() - tail.bytes), *ref,
                             remaining.last(tail.bytes)};
}

InlineBulkBody::InlineBulkBody(const BodyWriter& body, const RegionRef& ref, ByteView bytes)
    : body_(body), ref_(ref), bytes_(bytes) {
    WEFT_DCHECK(bytes.empty() || bytes.size() == ref.length);
}

std::size_t InlineBulkBody::size() const {
    return body_.bytes + bytes_.size() + sizeof(InlineBulkTail);
}

BodyWriter InlineBulkBody::writer() { return {size(), this, &InlineBulkBody::write}; }

void InlineBulkBody::write(void* object, std::byte* to) {
    const auto& self = *static_cast<const InlineBulkBody*>(object);
    self.body_(to);
    to = std::copy(self.bytes_.begin(), self.bytes_.end(), to + self.body_.bytes);
    InlineBulkTail tail;
    self.ref_.encode(std::span<std::byte, RegionRef::wire_bytes>(
        reinterpret_cast<std::byte*>(tail.ref), RegionRef::wire_bytes));
    tail.bytes = static_cast<std::uint32_t>(self.bytes_.size());
    base::store(to, tail);
}

// The offset of the range in `ref_`; nullopt: the range is not inside or the access not allowed.
std::optional<std::size_t> InlineBulk::place_of(const RegionRef& range, std::uint64_t offset,
                                                std::size_t bytes, Access access) const {
    if (!is_same_region(range) || bytes == 0 || !allows(range.access, access) ||
        !allows(ref_.access, access)) {
        return std::nullopt;
    }
    // The sum below does not overflow if decode() accepts `range`.
    if (offset > range.length || bytes > range.length - offset) return std::nullopt;
    const std::uint64_t at = range.offset + offset;
    if (at < ref_.offset || at - ref_.offset > ref_.length ||
        bytes > ref_.length - (at - ref_.offset)) {
        return std::nullopt;
    }
    return at - ref_.offset;
}

bool InlineBulk::is_same_region(const RegionRef& range) const {
    return range.owner == ref_.owner && range.region == ref_.region &&
           range.generation == ref_.generation && range.key == ref_.key;
}

// The sums may overflow for invalid ranges; such transfers are refused anyway.
bool InlineBulk::overlaps(const RegionRef& range, std::uint64_t offset, std::size_t bytes) const {
    const std::uint64_t at = range.offset + offset;
    return is_same_region(range) && at < ref_.offset + ref_.length && ref_.offset < at + bytes;
}

bool InlineBulk::get(const na::Arena& arena, const RegionRef& from, std::uint64_t offset,
                     Bytes to) const {
    const auto at = place_of(from, offset, to.size(), Access::read);
    WEFT_ASSERT(!at || *at + to.size() <= bytes_.size());
    return at && na::write_memory(arena, to, ByteView(bytes_).subspan(*at, to.size()));
}

bool InlineBulk::may_put(const RegionRef& to, std::uint64_t offset, std::size_t bytes) const {
    return place_of(to, offset, bytes, Access::write).has_value();
}

void InlineBulk::put(const RegionRef& to, std::uint64_t offset, ByteView from) {
    has_put_ = true;
    const auto at = place_of(to, offset, from.size(), Access::write);
    WEFT_ASSERT(at && (bytes_.empty() || *at + from.size() <= bytes_.size()));
    if (!bytes_.empty()) std::memcpy(bytes_.data() + *at, from.data(), from.size());
}

}  // namespace weft::rpc
