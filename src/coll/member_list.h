// Members by name, as a request lists them: one for each position of a subtree. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include <weft/bytes.h>
#include <weft/group_view.h>
#include <weft/result.h>

namespace weft::coll {

// The bytes as received, with an index: only members that are read become strings. Memory: the
// bytes and 4 for each member.
class MemberList {
  public:
    std::uint32_t size() const {
        return begins_.empty() ? 0 : static_cast<std::uint32_t>(begins_.size() - 1);
    }
    // Requires: index < size().
    Member at(std::uint32_t index) const;
    // As group::host_of(at(index)).
    std::string_view host_at(std::uint32_t index) const;
    // Members [first, last), as encode_members() writes them. Requires: first <= last <= size().
    ByteView bytes(std::uint32_t first, std::uint32_t last) const;
    std::size_t heap_bytes() const {
        return bytes_.capacity() + begins_.capacity() * sizeof(std::uint32_t);
    }

  private:
    friend Result<MemberList> decode_members(ByteView bytes, std::uint32_t count);

    std::vector<std::byte> bytes_;
    std::vector<std::uint32_t> begins_;  // Where each member begins, then the end.
};

// Members at the positions of an interval, in order.
std::vector<std::byte> encode_members(const std::vector<const Member*>& members);
// Errors: INVALID_ARGUMENT: not `count` of them, or impossible addresses. Cost: one pass over
// the bytes, two allocations.
Result<MemberList> decode_members(ByteView bytes, std::uint32_t count);

// How many members a request to a member of this view may name: the sender's view may be later, but
// not that much larger.
inline std::size_t named_max(const GroupView& view) { return 4096 + std::size_t{4} * view.size(); }
// The limit of their bytes.
constexpr std::size_t named_bytes_max(std::size_t members) {
    return (std::size_t{1} << 20) + 512 * members;
}

}  // namespace weft::coll
