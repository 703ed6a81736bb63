// The bodies of the calls of the scenario rpc.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include <weft/bytes.h>

#include "simulation/ledger.h"

namespace weft::scenarios {

inline constexpr std::size_t large_bytes_min = 66'000;  // Too large for a message.
inline constexpr std::size_t large_bytes_spread = 60'000;
inline constexpr std::size_t filling_bytes_min =
    10'000;  // In a message; a few of them fill a connection.
inline constexpr std::size_t filling_bytes_spread = 50'000;

struct Message {
    std::uint64_t number = 0;
    std::uint64_t nonce = 0;
};

inline ByteView bytes_of(const Message& message) {
    return {reinterpret_cast<const std::byte*>(&message), sizeof message};
}

// The message, and for a large one words that no other message has.
inline std::vector<std::byte> body_of(const Message& message, Work work) {
    const std::uint64_t drawn = message.number * 7919;
    const std::size_t large = drawn % 3 == 0 ? filling_bytes_min + drawn % filling_bytes_spread
                                             : large_bytes_min + drawn % large_bytes_spread;
    std::vector<std::byte> body(is_large(work, message.number) ? large : sizeof message);
    std::memcpy(body.data(), &message, sizeof message);
    for (std::size_t at = sizeof message; at < body.size(); at += sizeof(std::uint64_t)) {
        const std::uint64_t word = marked_word(message.number, at);
        std::memcpy(body.data() + at, &word, std::min(sizeof word, body.size() - at));
    }
    return body;
}

}  // namespace weft::scenarios
