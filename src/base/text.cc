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

// The sequence that the text begins with; 0: none.
static std::size_t sequence_bytes(std::string_view text) {
    const auto at = [&](std::size_t i) {
        return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u;
    };
    const unsigned first = at(0);
    if (first < 0x80) return 1;
    const std::size_t bytes = first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (bytes == 0 || first > 0xf4) return 0;
    for (std::size_t i = 1; i < bytes; ++i) {
        if (at(i) >> 6 != 2) return 0;
    }
    const bool is_overlong = (first == 0xe0 && at(1) < 0xa0) || (first == 0xf0 && at(1) < 0x90);
    const bool is_none = (first == 0xed && at(1) > 0x9f) || (first == 0xf4 && at(1) > 0x8f);
    return is_overlong || is_none ? 0 : bytes;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t bytes = sequence_bytes(text);
        if (bytes == 0) return false;
        text.remove_prefix(bytes);
    }
    return true;
}

}  // namespace weft::base
