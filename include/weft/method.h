// Methods by name.
#pragma once

#include <cstdint>
#include <string_view>

namespace weft {

// FNV-1a, 64 bits (Fowler, Noll, Vo; parameters from RFC 9923): the name of a method on the wire.
constexpr std::uint64_t method_hash(std::string_view full_name) {
    std::uint64_t hash = 0xcbf29ce484222325;
    for (char c : full_name) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3;
    }
    return hash;
}

// A method by its protobuf full name, "package.Service/Method". The text must outlive the value.
struct MethodId {
    std::uint64_t hash = 0;
    std::string_view name;

    constexpr MethodId() = default;
    constexpr explicit MethodId(std::string_view full_name)
        : hash(method_hash(full_name)), name(full_name) {}
};

}  // namespace weft
