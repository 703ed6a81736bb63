#pragma once

#include <string>
#include <string_view>

namespace weft::base {

// On one line and without a say on the terminal, whoever wrote it: control characters as \x1b.
std::string printable(std::string_view text);
// As in RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
bool is_utf8(std::string_view text);

}  // namespace weft::base
