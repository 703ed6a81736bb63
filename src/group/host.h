// Which host a member is on, as far as its addresses tell.
#pragma once

#include <string_view>

#include <weft/group_view.h>

namespace weft::group {

// The host of the first address of a network; empty where all are of one machine (sm, unix). Of
// addresses without ports it is the whole name (sim).
std::string_view host_of(const Member& member);

}  // namespace weft::group
