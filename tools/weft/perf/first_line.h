// The first line that a server of `weft perf` prints, for the process that started it:
// "listening URI", or "failed CODE TEXT".
#pragma once

#include <string>
#include <string_view>

#include <weft/result.h>

namespace weft::tool {

// Errors: as flush_output(). A server whose line can't be written ends: its address is not known.
Status say_listening(const std::string& uri);
void say_failed(const Status& status);

// The URI. Errors: what the server could not do; INTERNAL for a line that is neither.
Result<std::string> read_first_line(std::string_view line);

}  // namespace weft::tool
