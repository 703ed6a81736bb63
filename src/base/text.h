#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::base {

// On one line, and without effect on a terminal or on the order of what is read: bytes that are no
// UTF-8 and characters below U+0100 as \x9b, other control and format characters as \u{202e}.
std::string printable(std::string_view text);
// The same of each line of several.
std::string printable_lines(std::string_view text);
// As in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);
// The first `bytes_max` bytes, less what they hold of a character that ends behind them. Of what is
// no UTF-8 up to three bytes less, or none.
std::string_view cut_text(std::string_view text, std::size_t bytes_max);
// How many characters must be put in, taken out or replaced to make one of the other (Levenshtein
// 1966). Time and memory by the product of their lengths.
std::size_t edits_between(std::string_view one, std::string_view other);

}  // namespace weft::base
