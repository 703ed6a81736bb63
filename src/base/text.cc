#include "base/text.h"

#include <cstdio>

namespace weft::base {

std::string printable(std::string_view text) {
    std::string line;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto c = static_cast<unsigned char>(text[i]);
        // U+0080 to U+009F are control characters, too: two bytes in UTF-8.
        const bool c1 = c == 0xc2 && i + 1 < text.size() &&
                        static_cast<unsigned char>(text[i + 1]) >> 5 == 0x80 >> 5;
        if (c >= 0x20 && c != 0x7f && !c1) {
            line += text[i];
            continue;
        }
        char escaped[8];
        std::snprintf(escaped, sizeof escaped, "\\x%02x",
                      c1 ? static_cast<unsigned char>(text[++i]) : c);
        line += escaped;
    }
    return line;
}

}  // namespace weft::base
