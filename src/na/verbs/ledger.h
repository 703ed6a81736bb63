// What an endpoint asked of its card: the counts behind the cost of a call (docs/performance.md).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft::na::verbs {

struct Ledger {
    std::uint64_t doorbells = 0;      // Lists of work requests that were posted to send.
    std::uint64_t work_requests = 0;  // In them.
    std::uint64_t inline_sends = 0;   // Messages that went inside their work requests,
    std::uint64_t inline_bytes = 0;   // and their bytes.
    std::uint64_t payload_reads = 0;  // Messages and puts that the card had to fetch from memory.
    std::uint64_t signalled = 0;      // Work requests that were to give a completion.
    std::uint64_t messages_in = 0;    // That came: a completion each.
    std::uint64_t receive_posts = 0;  // Lists of buffers given to the card for more.
    std::uint64_t transfers = 0;      // Puts and gets.
    std::uint64_t registrations = 0;  // Of memory.

    struct Row {
        std::string_view name;
        std::uint64_t Ledger::*count;
    };
    static constexpr std::array<Row, 10> rows();
};

constexpr std::array<Ledger::Row, 10> Ledger::rows() {
    return {{{"doorbells", &Ledger::doorbells},
             {"work requests", &Ledger::work_requests},
             {"inline sends", &Ledger::inline_sends},
             {"inline bytes", &Ledger::inline_bytes},
             {"payload reads", &Ledger::payload_reads},
             {"send completions", &Ledger::signalled},
             {"messages in", &Ledger::messages_in},
             {"receive posts", &Ledger::receive_posts},
             {"transfers", &Ledger::transfers},
             {"registrations", &Ledger::registrations}}};
}

}  // namespace weft::na::verbs
