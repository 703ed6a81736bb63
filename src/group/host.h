// The host of a member, as far as its addresses show it.
#pragma once

#include <optional>
#include <string_view>

#include <weft/group_view.h>

namespace weft::group {

// The host of the first network address; empty if all addresses are local to a machine (sm, unix).
// For addresses without ports it is the whole name (sim).
std::string_view host_of(const Member& member);
// The host of one address; nullopt: not a network address.
std::optional<std::string_view> host_in(std::string_view uri);

}  // namespace weft::group
