// Bodies of protobuf messages, written field by field.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::test {

inline std::string repeat(std::string_view piece, std::size_t bytes) {
    std::string all;
    while (all.size() + piece.size() <= bytes) all += piece;
    return all;
}

inline std::string tag(std::uint32_t field, std::uint32_t wire) {
    std::string made;
    std::uint32_t value = field << 3 | wire;
    for (; value >= 0x80; value >>= 7) made += static_cast<char>(value | 0x80);
    return made += static_cast<char>(value);
}

inline std::string number_of(std::size_t value) {
    std::string made;
    for (; value >= 0x80; value >>= 7) made += static_cast<char>(value | 0x80);
    return made += static_cast<char>(value);
}

inline std::string in(std::uint32_t field, const std::string& bytes) {
    return tag(field, 2) + number_of(bytes.size()) + bytes;
}

inline std::string group_in(std::uint32_t field, const std::string& bytes) {
    return tag(field, 3) + bytes + tag(field, 4);
}

}  // namespace weft::test
