// Settings that libfabric reads only from the environment, when it starts.
#pragma once

#include <string>

#include "na/ofi/fabric.h"

namespace weft::na::ofi {

// Sets the variables of both providers, since libfabric reads them once for both; values that the
// user has set stay. Called by the thread that loads libfabric, before it loads it.
void prepare_environment();
std::string required_settings();  // The settings that fences need, as "NAME=value".
// Whether the environment lets memory of `traits` be fenced. Loads libfabric, which sets what the
// user has not.
bool can_fence(const FabricTraits& traits);
// Whether libfabric read the environment before prepare_environment(): then can_fence() may be
// wrong.
bool started_before_us(const Fabric& fabric);
// The resources that an endpoint over a device needs and may lack, as text.
std::string room_needed();
extern const char* const buffer_setting;  // rxm's eager limit.

}  // namespace weft::na::ofi
