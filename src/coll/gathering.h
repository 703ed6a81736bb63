// What the members of a meeting send each other. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include <weft/group.h>

namespace weft::coll {

// Which meeting it is. In front of each message.
struct Gathering {
    static constexpr std::size_t name_bytes_max = 256;

    std::uint64_t group = 0;  // method_hash of its name.
    std::uint64_t epoch = 0;  // Of the leader's view.
    std::uint64_t round = 0;  // The leader's, random; 0: not known yet.
    std::uint32_t leader = 0;
    std::string_view name;
};
std::vector<std::byte> encode(const Gathering& gathering);
// Errors: INVALID_ARGUMENT: too short, or a name that is too long; `rest`: what follows.
Result<Gathering> decode_gathering(ByteView bytes, ByteView* rest);

// What a meeting came to. Nothing: it has more than `bytes_max` bytes.
std::optional<std::vector<std::byte>> encode_outcome(const GroupOutcome& outcome, bool is_merged,
                                                     std::size_t bytes_max);
// `view`: the receiver's; incarnations are 0 where it is another than the outcome's. Errors:
// INVALID_ARGUMENT: also of more than four times its members, and 4096, that succeeded.
Result<GroupOutcome> decode_outcome(ByteView bytes, const GroupView& view);

// What a look at the leader sees.
struct Seen {
    enum class State : std::uint8_t {
        waits,  // Or it is not known yet.
        on,     // That round.
        over,   // It ended; the outcome follows.
        gone,   // Nothing is known of that round.
    };
    State state = State::waits;
    ByteView outcome;
};
std::vector<std::byte> encode(const Seen& seen);
// Errors: INVALID_ARGUMENT.
Result<Seen> decode_seen(ByteView bytes);

}  // namespace weft::coll
