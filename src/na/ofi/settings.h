// Settings that libfabric takes from the environment only, when it starts.
#pragma once

#include <string>

#include "na/ofi/fabric.h"

namespace weft::na::ofi {

// Those of all rows, as whichever starts libfabric starts it for all. What the user has set stays.
// Before libfabric is loaded: by the thread that does.
void prepare_environment();
std::string required_settings();  // Those without which nothing can be fenced, as "NAME=value".
// Whether the environment lets memory of `row` be fenced. Loads libfabric, which sets what the user
// has not.
bool can_fence(const Row& row);
// Whether the environment was read before we changed it: then the above is not to be trusted.
bool started_before_us(const Fabric& fabric);
// What an endpoint of a card needs and may not get, in words.
std::string room_needed();
extern const char* const buffer_setting;  // rxm's eager limit.

}  // namespace weft::na::ofi
