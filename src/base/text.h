#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::base {

// `text` on one line, without effect on a terminal or on the display order: bytes that are no UTF-8
// and control characters below U+0100 as \x9b, other control and format characters as \u{202e}.
std::string printable(std::string_view text);
// The same for each line of `text`.
std::string printable_lines(std::string_view text);
// As in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// The first `bytes_max` bytes without a partial character at their end; up to three bytes less if
// `text` is no UTF-8.
std::string_view truncate_utf8(std::string_view text, std::size_t bytes_max);
// The number of bytes to insert, remove or replace to turn one text into the other (Levenshtein
// 1966). Time: the product of their lengths. Memory: the length of `other`.
std::size_t edit_distance(std::string_view one, std::string_view other);

}  // namespace weft::base
