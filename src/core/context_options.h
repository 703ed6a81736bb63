// The bounds of a context.
#pragma once

#include <cstddef>
#include <cstdint>

#include <weft/time.h>

namespace weft::core {

// What an operation that another thread hands over holds until its turn, besides its body.
inline constexpr std::size_t handed_over_bytes = 256;
// With its body. No size of one wraps around: what is too large to be added is refused as it is.
constexpr std::size_t handed_over(std::size_t body_bytes) {
    return body_bytes > SIZE_MAX - handed_over_bytes ? SIZE_MAX : body_bytes + handed_over_bytes;
}

struct ContextOptions {
    Duration heartbeat_interval = 400ms;
    std::uint8_t heartbeats_missed_max = 5;  // Dead after 2.0 to 2.4 s of silence.
    std::size_t waiting_bytes_all_max = 512u << 20;
    // Of one peer: with the default the largest replies of a whole session, which its client has
    // had no time to read. Short frames go beyond, by what says of each call what became of it.
    std::size_t waiting_bytes_max() const { return waiting_bytes_all_max / 4; }
    std::uint32_t waiting_frames_max = 16384;  // Per peer.
    std::uint32_t waiting_data_max = 12288;    // Of these, data of puts that ride with replies.
    std::uint32_t peers_max = 65536;
    std::size_t submitted_bytes_max = 64u << 20;  // Requests from other threads.
    std::size_t parsed_bytes_max = 1u << 30;      // RuntimeOptions::parsed_bytes_max.
};

}  // namespace weft::core
