// Text to standard error that is never waited for without end: what reads the other end of a pipe
// may have stopped. The descriptor is shared with other processes, so that its flags stay as they
// are: a pipe that has room takes PIPE_BUF bytes without waiting, and text goes in pieces of that
// size. Nothing is allocated, and no lock is taken that a forked child may inherit.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <string_view>

namespace weft::base {

// How many bytes found room, waiting for each piece that long; the rest is left out.
std::size_t put_to_standard_error(std::string_view text, int wait_ms = 0);

// The sentence with which a program ends: its parts in one piece, which is cut at PIPE_BUF and gets
// a second to find room.
void put_last_words(std::initializer_list<std::string_view> parts);

}  // namespace weft::base
