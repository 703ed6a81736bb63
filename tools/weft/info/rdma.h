// The RDMA devices of this machine, as text and as JSON.
#pragma once

#include <string>

#include "cli/invocation.h"

namespace weft::tool {

// {"devices":[...],"missing":null or why there is none}; null in a build without verbs.
Json rdma_to_json();
// Lines that end in '\n'.
std::string rdma_to_text();

}  // namespace weft::tool
