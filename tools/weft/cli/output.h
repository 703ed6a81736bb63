// Standard output: the first line that can't be written is an error of the command, with its cause.
#pragma once

#include <weft/status.h>

namespace weft::tool {

// From now on `stdout` stores the reason of its first failed write. Call once, before any output.
void open_output();

// Writes all output printed so far. Thread: any. Errors: as storage::write_all() of the first
// failed write: RESOURCE_EXHAUSTED for a full disk, FAILED_PRECONDITION for a closed pipe or an
// invalid descriptor. A command that prints while it runs ends then.
Status flush_output();

}  // namespace weft::tool
