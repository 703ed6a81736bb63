// Which host a member is on, as far as its addresses tell.
#pragma once

#include <optional>
#include <string_view>

#include <weft/group_view.h>

namespace weft::group {

// The host of the first address of a network; empty where all are of one machine (sm, unix). Of
// addresses without ports it is the whole name (sim).
std::string_view host_of(const Member& member);
// That of one address; nothing: it is of no network.
std::optional<std::string_view> host_in(std::string_view uri);

}  // namespace weft::group
