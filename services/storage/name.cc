#include "name.h"

#include <algorithm>

namespace storage {

using weft::Code;
using weft::Status;

// Length of the UTF-8 sequence at the start of `text`; 0 when it is invalid (RFC 3629).
static std::size_t sequence_bytes(std::string_view text) {
    const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
    const unsigned char lead = byte(0);
    if (lead < 0x80) return 1;
    const std::size_t bytes = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4 || text.size() < bytes) return 0;
    for (std::size_t i = 1; i < bytes; ++i) {
        if ((byte(i) & 0xc0) != 0x80) return 0;
    }
    // Overlong forms, surrogates, code points above U+10FFFF.
    if (lead == 0xe0 && byte(1) < 0xa0) return 0;
    if (lead == 0xed && byte(1) > 0x9f) return 0;
    if (lead == 0xf0 && byte(1) < 0x90) return 0;
    if (lead == 0xf4 && byte(1) > 0x8f) return 0;
    return bytes;
}

bool is_utf8(std::string_view text) {
    while (!text.empty()) {
        const std::size_t bytes = sequence_bytes(text);
        if (bytes == 0) return false;
        text.remove_prefix(bytes);
    }
    return true;
}

std::string quote(std::string_view name) {
    constexpr std::size_t display_bytes_max = 120;
    std::string text = "'";
    std::string_view rest = name.substr(0, display_bytes_max);
    while (!rest.empty()) {
        const std::size_t bytes = sequence_bytes(rest);
        const bool control = bytes == 1 && (rest[0] < ' ' || rest[0] == 0x7f);
        if (bytes == 0 || control) {
            text += '?';
        } else {
            text += rest.substr(0, bytes);
        }
        rest.remove_prefix(bytes ? bytes : 1);
    }
    return text + (name.size() > display_bytes_max ? "…'" : "'");
}

static std::string why_no_part(std::string_view part) {
    if (part.empty()) return "has an empty part";
    if (part == "." || part == "..") return "has a part '.' or '..'";
    if (part.size() > part_bytes_max)
        return "has a part of more than " + std::to_string(part_bytes_max) + " bytes";
    if (part.ends_with(unfinished_suffix))
        return "ends like an unfinished object (" + std::string(unfinished_suffix) + ")";
    return "";
}

static std::string why_no_name(std::string_view name) {
    if (name.empty()) return "is empty";
    if (name.size() > name_bytes_max)
        return "has more than " + std::to_string(name_bytes_max) + " bytes";
    if (name.front() == '/') return "starts with '/': names are relative to the server's root";
    if (name.find('\0') != name.npos) return "has a zero byte";
    if (!is_utf8(name)) return "is not UTF-8";
    std::size_t depth = 0;
    while (true) {
        const std::size_t end = name.find('/');
        if (std::string why = why_no_part(name.substr(0, end)); !why.empty()) return why;
        if (++depth > name_depth_max)
            return "has more than " + std::to_string(name_depth_max) + " parts";
        if (end == name.npos) return "";
        name.remove_prefix(end + 1);
    }
}

Status validate_name(std::string_view name) {
    const std::string why = why_no_name(name);
    if (why.empty()) return {};
    return weft::rejected(Code::invalid_argument, "the object name " + quote(name) + " " + why);
}

Status validate_prefix(std::string_view prefix) {
    if (prefix.empty()) return {};
    // A prefix may end in "/": one byte more makes it a name.
    return validate_name(prefix.ends_with('/') ? std::string(prefix) + "x" : std::string(prefix));
}

bool is_before(std::string_view a, std::string_view b) {
    // A part that ends sorts before a part that continues.
    const auto rank = [](char c) { return c == '/' ? 0 : 1 + static_cast<unsigned char>(c); };
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(),
                                        [&](char x, char y) { return rank(x) < rank(y); });
}

SplitName split(std::string_view name) {
    const std::size_t at = name.rfind('/');
    if (at == name.npos) return {"", std::string(name)};
    return {std::string(name.substr(0, at)), std::string(name.substr(at + 1))};
}

}  // namespace storage
