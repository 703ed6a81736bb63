// Bytes in hexadecimal.
#pragma once

#include <string>

#include <weft/bytes.h>

namespace weft::test {

inline std::string hex_of(ByteView bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string hex;
    for (std::byte byte : bytes) {
        hex += digits[static_cast<unsigned>(byte) >> 4];
        hex += digits[static_cast<unsigned>(byte) & 15];
    }
    return hex;
}

}  // namespace weft::test
