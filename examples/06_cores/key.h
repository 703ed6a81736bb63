// What client and server must agree on: the hash of a key, which decides its context.
#pragma once

#include <cstdint>
#include <string_view>

// FNV-1a (Fowler, Noll, Vo).
constexpr std::uint64_t hash_of(std::string_view key) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (const char c : key) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    return hash;
}
