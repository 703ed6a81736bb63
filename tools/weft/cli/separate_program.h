// Commands that are programs of their own: `weft NAME` becomes `weft-NAME`.
#pragma once

#include <weft/status.h>

namespace weft::tool {

// Replaces the program of this process. Returns only if that fails: UNIMPLEMENTED if the program is
// not there, INTERNAL.
Status become_program(const char* name, char** argv);

}  // namespace weft::tool
