// Addresses at which a tool listens for its own use.
#pragma once

#include <string>

namespace weft::tool {

// An address of this process's own on `transport`: sm://weft-PURPOSE-PID, a free port of loopback.
// Empty: no address is known.
std::string own_uri(const std::string& transport, const std::string& purpose);

}  // namespace weft::tool
