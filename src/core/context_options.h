// The bounds of a context.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>

#include <weft/options.h>
#include <weft/time.h>

namespace weft::core {

// RuntimeOptions::parsed_bytes_max, or its default.
inline std::size_t parsed_bytes_of(const RuntimeOptions& options) {
    if (options.parsed_bytes_max != 0) return options.parsed_bytes_max;
    return std::max<std::size_t>(8 * options.argument_bytes_max, 64u << 20);
}

// RuntimeOptions::offload_threads, or its default. Requires: contexts != 0.
inline unsigned offload_threads_of(const RuntimeOptions& options) {
    if (options.offload_threads != 0) return options.offload_threads;
    return std::max(options.contexts, 2u);
}

// The memory that an operation of another thread holds until its turn, besides its body.
inline constexpr std::size_t submission_overhead_bytes = 256;
// With its body. Saturates instead of wrapping around, so that a huge body is refused.
constexpr std::size_t submission_bytes(std::size_t body_bytes) {
    return body_bytes > SIZE_MAX - submission_overhead_bytes
               ? SIZE_MAX
               : body_bytes + submission_overhead_bytes;
}

// Bytes that each peer may have waiting, whatever the other peers have.
inline constexpr std::size_t waiting_bytes_guaranteed = 64u << 10;

struct Budgets;
class ThreadOwnership;

// The defaults are those of RuntimeOptions where that has the option.
struct ContextOptions {
    Duration heartbeat_interval = RuntimeOptions().heartbeat_interval;
    std::uint8_t heartbeats_missed_max = 5;  // Times out 2.4 to 2.8 s after the last answer.
    std::size_t waiting_bytes_all_max = RuntimeOptions().waiting_bytes_max;
    // For one peer: the default holds the largest replies of a whole session, not yet read by its
    // client. Short frames may exceed it, by the room for the outcome of each call.
    std::size_t waiting_bytes_max() const { return waiting_bytes_all_max / 4; }
    std::uint32_t waiting_frames_max = 16384;  // Per peer.
    std::uint32_t waiting_data_max = 12288;    // Of these, data of puts ahead of replies.
    std::uint32_t peers_max = 65536;
    std::size_t submitted_bytes_max = 64u << 20;  // Requests from other threads.
    std::size_t parsed_bytes_max = parsed_bytes_of(RuntimeOptions());
    // Of several contexts of a runtime: their limits, the first one, and this one's number.
    std::shared_ptr<Budgets> budgets;
    const ThreadOwnership* family = nullptr;
    std::uint16_t member = 0;
};

}  // namespace weft::core
