// Text to standard error by a thread that must not wait.
#pragma once

#include <string_view>

namespace weft::base {

// False: not all of it found room, and the rest is left out. The descriptor is shared with other
// processes, so that its flags stay as they are: a pipe that has room takes PIPE_BUF bytes without
// waiting, and the text goes in pieces of that size.
bool put_to_standard_error(std::string_view text);

}  // namespace weft::base
