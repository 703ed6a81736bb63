// What an endpoint asked of its card: the counts behind the cost of a call, and a model that turns
// them into transactions of PCI Express (docs/performance.md).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace weft::na::verbs {

struct Ledger {
    std::uint64_t doorbells = 0;       // Lists of work requests that were posted to send;
    std::uint64_t locked = 0;          // of those, where the driver takes a lock;
    std::uint64_t lists = 0;           // of those, with more than one work request.
    std::uint64_t work_requests = 0;   // In all of them,
    std::uint64_t request_blocks = 0;  // and their length in blocks of 64 bytes,
    std::uint64_t listed_blocks = 0;   // and that of those in `lists`.
    std::uint64_t pair_changes = 0;    // Lists for another queue pair than the last one.
    std::uint64_t inline_sends = 0;    // Messages that went inside their work requests,
    std::uint64_t inline_bytes = 0;    // and their bytes.
    std::uint64_t payload_reads = 0;   // Messages and puts that the card had to fetch from memory.
    std::uint64_t credit_sends = 0;    // Messages that only return credits.
    std::uint64_t signalled = 0;       // Work requests that were to give a completion.
    std::uint64_t messages_in = 0;     // That came: a completion each.
    std::uint64_t payload_writes = 0;  // Messages with content, and gets: the card wrote to memory.
    std::uint64_t page_misses = 0;     // Messages on pages that MessageMemory does not know.
    std::uint64_t receive_posts = 0;   // Lists of buffers given to the card for more.
    std::uint64_t transfers = 0;       // Puts and gets.
    std::uint64_t registrations = 0;   // Of memory.

    struct Row {
        std::string_view name;
        std::uint64_t Ledger::*count;
    };
    static constexpr std::array<Row, 18> rows();
};

constexpr std::array<Ledger::Row, 18> Ledger::rows() {
    return {{{"doorbells", &Ledger::doorbells},
             {"locked doorbells", &Ledger::locked},
             {"lists", &Ledger::lists},
             {"work requests", &Ledger::work_requests},
             {"blocks of work requests", &Ledger::request_blocks},
             {"blocks in lists", &Ledger::listed_blocks},
             {"changes of queue pair", &Ledger::pair_changes},
             {"inline sends", &Ledger::inline_sends},
             {"inline bytes", &Ledger::inline_bytes},
             {"payload reads", &Ledger::payload_reads},
             {"credit sends", &Ledger::credit_sends},
             {"send completions", &Ledger::signalled},
             {"messages in", &Ledger::messages_in},
             {"payload writes", &Ledger::payload_writes},
             {"misses of page", &Ledger::page_misses},
             {"receive posts", &Ledger::receive_posts},
             {"transfers", &Ledger::transfers},
             {"registrations", &Ledger::registrations}}};
}

// Transactions of PCI Express that the counts stand for, by a card as Kalia, Kaminsky and Andersen
// describe it (Design Guidelines for High Performance RDMA Systems, USENIX ATC 2016): a single work
// request goes to the card by the processor's own writes, of 64 bytes each; of a longer list the
// card fetches every block; it fetches each receive buffer's description, and writes a completion
// of 64 bytes for each message and each signalled work request. An upper bound: cards fetch several
// blocks at once, and compress completions. What a peer's gets and puts cost its target is not in.
struct PcieCost {
    std::uint64_t processor_writes = 0;
    std::uint64_t card_reads = 0;
    std::uint64_t card_writes = 0;
};

constexpr PcieCost pcie_cost(const Ledger& ledger) {
    PcieCost cost;
    cost.processor_writes = ledger.lists + (ledger.request_blocks - ledger.listed_blocks);
    cost.card_reads = ledger.listed_blocks + ledger.payload_reads + ledger.messages_in;
    cost.card_writes = ledger.payload_writes + ledger.signalled + ledger.messages_in;
    return cost;
}

}  // namespace weft::na::verbs
