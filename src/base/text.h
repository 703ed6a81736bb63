#pragma once

#include <string>
#include <string_view>

namespace weft::base {

// On one line and without a say on the terminal, whoever wrote it: control characters as \x1b.
std::string printable(std::string_view text);

}  // namespace weft::base
