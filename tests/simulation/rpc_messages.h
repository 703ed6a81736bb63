// The methods of the scenario rpc, and the bodies of its calls.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include <weft/bytes.h>
#include <weft/method.h>

#include "simulation/ledger.h"

namespace weft::scenarios {

inline constexpr MethodId add_method("sim.Rpc/Add");
inline constexpr MethodId read_method("sim.Rpc/Read");
inline constexpr MethodId later_method("sim.Rpc/Later");
inline constexpr MethodId nested_method("sim.Rpc/Nested");
inline constexpr MethodId elsewhere_method("sim.Rpc/Elsewhere");
inline constexpr MethodId failing_method("sim.Rpc/Failing");
inline constexpr MethodId refused_method("sim.Rpc/Refused");
inline constexpr MethodId probe_method("sim.Rpc/Probe");

inline const MethodId& method_of(Work work) {
    switch (work) {
        case Work::read: return read_method;
        case Work::later: return later_method;
        case Work::nested: return nested_method;
        case Work::elsewhere: return elsewhere_method;
        case Work::failing: return failing_method;
        case Work::refused: return refused_method;
        default: return add_method;
    }
}

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
