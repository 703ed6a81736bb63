// The largest size of a view as text or bytes; larger input is refused.
#pragma once

#include <cstddef>

#include <weft/group_view.h>

namespace weft::group {

inline constexpr std::size_t uri_bytes_max = 400;  // Of one address, as in na::parse_address().

// A member's JSON without its addresses: 84 bytes of names, numbers and marks, and quotes and a
// comma for each address.
inline constexpr std::size_t member_bytes_max = 84 + 3 * GroupView::uris_max;
inline constexpr std::size_t view_bytes_max = 320u << 20;
// JSON may escape every byte of an address with a second one.
static_assert(GroupView::members_max * member_bytes_max + 2 * GroupView::uri_bytes_max <=
              view_bytes_max - 4096);

}  // namespace weft::group
