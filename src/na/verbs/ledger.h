// What an endpoint asked of its card: the counts behind the cost of a call (docs/performance.md).
#pragma once

#include <cstdint>

namespace weft::na::verbs {

struct Ledger {
    std::uint64_t doorbells = 0;      // Lists of work requests that were posted to send.
    std::uint64_t work_requests = 0;  // In them.
    std::uint64_t inline_bytes = 0;   // Of messages that went inside their work requests.
    std::uint64_t inline_messages = 0;
    std::uint64_t payload_reads = 0;  // Messages and puts that the card had to fetch from memory.
    std::uint64_t signalled = 0;      // Work requests that were to give a completion.
    std::uint64_t completions = 0;    // Read, of either kind:
    std::uint64_t messages_in = 0;    // messages that came,
    std::uint64_t receive_posts = 0;  // and lists of buffers given to the card for more.
    std::uint64_t transfers = 0;      // Puts and gets.
    std::uint64_t registrations = 0;  // Of memory.
};

}  // namespace weft::na::verbs
