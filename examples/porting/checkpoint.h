// The bytes of a checkpoint store's messages: the counterpart of proc functions and a shared
// header.
//
//     request: 48 bytes that name the caller's memory, then the checkpoint's name
//     reply:   8 bytes, least significant first: the number of bytes moved
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <weft/method.h>
#include <weft/region.h>

inline constexpr weft::MethodId save_method("porting.Checkpoint/Save");
inline constexpr weft::MethodId load_method("porting.Checkpoint/Load");

struct Request {
    weft::RegionRef memory;
    std::string name;
};

inline std::vector<std::byte> encode(const Request& request) {
    std::vector<std::byte> bytes(weft::RegionRef::wire_bytes);
    request.memory.encode(std::span(bytes).first<weft::RegionRef::wire_bytes>());
    const weft::ByteView name = weft::as_bytes(request.name);
    bytes.insert(bytes.end(), name.begin(), name.end());
    return bytes;
}

// The peer wrote these bytes, so every invalid value ends in a Status.
inline weft::Result<Request> decode(weft::ByteView bytes) {
    if (bytes.size() <= weft::RegionRef::wire_bytes) {
        return weft::rejected(weft::Code::invalid_argument, "a request without a name");
    }
    const auto memory = weft::RegionRef::decode(bytes.first(weft::RegionRef::wire_bytes));
    if (!memory) return weft::rejected(memory.status().code(), "a request without memory");
    return Request{*memory, std::string(weft::as_text(bytes.subspan(sizeof *memory)))};
}

inline std::vector<std::byte> encode_size(std::uint64_t moved) {
    std::vector<std::byte> bytes(sizeof moved);
    for (std::size_t i = 0; i < sizeof moved; ++i) bytes[i] = std::byte(moved >> (8 * i));
    return bytes;
}

inline std::uint64_t decode_size(weft::ByteView bytes) {
    std::uint64_t moved = 0;
    for (std::size_t i = 0; i < bytes.size() && i < sizeof moved; ++i) {
        moved |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    }
    return moved;
}
