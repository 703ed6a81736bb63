// Standard output: the first line that can't be written is an error of the command, with its cause.
#pragma once

#include <weft/status.h>

namespace weft::tool {

// From here on `stdout` keeps why it could not be written. Once, before anything is printed.
void open_output();

// What was printed so far has been written. Thread: any. Errors: as storage::write_all() of the
// first write that failed: RESOURCE_EXHAUSTED for a full disk, FAILED_PRECONDITION for a pipe that
// is closed or a descriptor that is none. What prints while it runs ends then.
Status flush_output();

}  // namespace weft::tool
