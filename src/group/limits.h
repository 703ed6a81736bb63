// What a view takes as text or bytes, at most: more is none.
#pragma once

#include <cstddef>

#include <weft/group_view.h>

namespace weft::group {

inline constexpr std::size_t uri_bytes_max = 400;  // Of one address, as na::parse_address() has it.

// A member's JSON but for its addresses: 84 bytes of names, numbers and marks, and quotes and a
// comma for each address.
inline constexpr std::size_t member_bytes_max = 84 + 3 * GroupView::uris_max;
inline constexpr std::size_t view_bytes_max = 320u << 20;
// Every byte of an address may be one that JSON escapes with another.
static_assert(GroupView::members_max * member_bytes_max + 2 * GroupView::uri_bytes_max <=
              view_bytes_max - 4096);

}  // namespace weft::group
