// The first line that a server of `weft perf` prints, for the process that started it:
// "listening URI", or "failed CODE TEXT".
#pragma once

#include <string>
#include <string_view>

#include <weft/result.h>

namespace weft::tool {

// Errors: as flush_output(). A server that can't write the line ends: its address is unknown.
Status print_listening(const std::string& uri);
void print_failed(const Status& status);

// The URI. Errors: the server's failure; INTERNAL for a line of neither form.
Result<std::string> read_first_line(std::string_view line);

}  // namespace weft::tool
