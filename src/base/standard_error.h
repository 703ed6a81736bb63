// Writes to standard error with a bounded wait: the reader of a pipe may have stopped. Other
// processes share the descriptor, so its flags stay unchanged. A pipe with room takes PIPE_BUF
// bytes without blocking, and text is written in pieces of that size. Allocates nothing, and takes
// no lock that a forked child may inherit.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace weft::base {

// Returns the number of bytes written. Each piece waits at most `wait_ms` for room; the rest is
// dropped.
std::size_t write_to_standard_error(std::string_view text, int wait_ms = 0);

// Writes the last message of a program: its parts in one piece, truncated at PIPE_BUF, which waits
// up to a second for room.
void write_fatal_message(std::initializer_list<std::string_view> parts);

}  // namespace weft::base
