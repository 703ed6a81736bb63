#include "base/text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <numeric>
#include <utility>
#include <vector>

#include "base/assert.h"

namespace weft::base {

namespace {

// Control and format characters: invisible, but they change how other text is displayed.
struct CodePoints {
    char32_t first, last;
};
constexpr CodePoints unprintable[] = {
    {0x00, 0x1f},        // Control characters: C0,
    {0x7f, 0x9f},        // DEL and C1, of which U+009B begins a terminal's sequences.
    {0xad, 0xad},        // Soft hyphen.
    {0x61c, 0x61c},      // Direction of text: Arabic letter mark,
    {0x200b, 0x200f},    // left-to-right and right-to-left marks, beside zero-width characters,
    {0x2028, 0x202e},    // embeddings and overrides, beside line and paragraph separators,
    {0x2060, 0x206f},    // isolates, beside invisible operators.
    {0xfeff, 0xfeff},    // Byte order mark.
    {0xfff9, 0xfffb},    // Interlinear annotation.
    {0xe0000, 0xe007f},  // Tags.
};

bool is_unprintable(char32_t c) {
    return std::any_of(std::begin(unprintable), std::end(unprintable),
                       [c](const CodePoints& of) { return c >= of.first && c <= of.last; });
}

// Requires: one sequence of UTF-8.
char32_t decode(std::string_view sequence) {
    WEFT_ASSERT(!sequence.empty() && sequence.size() <= 4);
    const auto first = static_cast<unsigned char>(sequence[0]);
    char32_t c = sequence.size() == 1 ? first : first & (0x7fu >> sequence.size());
    for (const char more : sequence.substr(1))
        c = c << 6 | (static_cast<unsigned char>(more) & 0x3f);
    return c;
}

}  // namespace

// The size of the UTF-8 sequence at the begin of `text`; 0: none.
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

std::string_view truncate_utf8(std::string_view text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) return text;
    for (std::size_t back = 0; back <= std::min<std::size_t>(bytes_max, 3); ++back) {
        const bool begins = static_cast<unsigned char>(text[bytes_max - back]) >> 6 != 2;
        if (begins) return text.substr(0, bytes_max - back);
    }
    return text.substr(0, bytes_max);
}

std::string printable(std::string_view text) {
    std::string line;
    while (!text.empty()) {
        const std::size_t bytes = sequence_bytes(text);
        const bool is_code_point = bytes != 0;
        const char32_t c =
            is_code_point ? decode(text.substr(0, bytes)) : static_cast<unsigned char>(text[0]);
        if (is_code_point && !is_unprintable(c)) {
            line += text.substr(0, bytes);
        } else {
            char escaped[16];
            std::snprintf(escaped, sizeof escaped, c < 0x100 ? "\\x%02x" : "\\u{%x}",
                          static_cast<unsigned>(c));
            line += escaped;
        }
        text.remove_prefix(std::max<std::size_t>(bytes, 1));
    }
    return line;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t bytes = sequence_bytes(text);
        if (bytes == 0) return false;
        text.remove_prefix(bytes);
    }
    return true;
}

std::size_t edit_distance(std::string_view one, std::string_view other) {
    std::vector<std::size_t> edits(other.size() + 1);  // Of the part of `one` read so far.
    std::iota(edits.begin(), edits.end(), std::size_t{0});
    for (std::size_t i = 0; i < one.size(); ++i) {
        std::size_t without_both = std::exchange(edits[0], i + 1);
        for (std::size_t j = 0; j < other.size(); ++j) {
            const std::size_t replaced = without_both + (one[i] != other[j]);
            without_both = edits[j + 1];
            edits[j + 1] = std::min({replaced, edits[j] + 1, edits[j + 1] + 1});
        }
    }
    return edits.back();
}

std::string printable_lines(std::string_view text) {
    std::string all;
    while (true) {
        const std::size_t end = text.find('\n');
        all += printable(text.substr(0, end));
        if (end == text.npos) return all;
        all += '\n';
        text.remove_prefix(end + 1);
    }
}

}  // namespace weft::base
