// The golden bytes of tests/vectors/*.hex: one structure per file, whitespace ignored, '#' starts a
// comment.
#pragma once

#include <fstream>
#include <string>
#include <vector>

#include <weft/bytes.h>

#include "support/catch.h"
#include "support/hex.h"

namespace weft::test {

inline std::vector<std::byte> vector_of(const std::string& name) {
    std::ifstream file(std::string(WEFT_TEST_DIR) + "/vectors/" + name + ".hex");
    REQUIRE(file);
    std::string hex, line;
    while (std::getline(file, line)) {
        for (char c : line.substr(0, line.find('#'))) {
            if (c != ' ' && c != '\t') hex += c;
        }
    }
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
        bytes.push_back(static_cast<std::byte>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    }
    return bytes;
}

// Compares both in hexadecimal, so that a failure is readable.
inline void check_bytes(const std::string& name, ByteView bytes) {
    INFO(name);
    CHECK(hex_of(bytes) == hex_of(vector_of(name)));
}

}  // namespace weft::test
