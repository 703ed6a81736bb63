// Optimizations that spare an RDMA device work. Each can be disabled on its own, to measure its
// effect (docs/performance.md has the table). All are enabled by default.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <weft/result.h>

namespace weft::na {

struct VerbsOptimizations {
    bool request_lists = true;  // The sends of a turn are one list of work requests: one doorbell.
    bool inline_sends = true;   // Small messages are in the work request: no fetch by the device.
    bool selective_signaling = true;   // One send in sixteen gives a completion.
    bool piggybacked_credits = true;   // Credits travel in the immediate data of other messages.
    bool parallel_queue_pairs = true;  // Transfers with one peer use several queue pairs.
    bool thread_domain = true;         // Driver objects belong to one thread: no driver locks.
    bool registration_cache = true;    // Registrations of the arena's memory are kept.
    bool huge_pages = true;            // Messages are in memory of 2 MiB pages.

    struct Switch {
        std::string_view name;
        bool VerbsOptimizations::*is_on;
    };
    static constexpr std::array<Switch, 8> switches();
};

constexpr std::array<VerbsOptimizations::Switch, 8> VerbsOptimizations::switches() {
    return {{{"lists", &VerbsOptimizations::request_lists},
             {"inlining", &VerbsOptimizations::inline_sends},
             {"quiet", &VerbsOptimizations::selective_signaling},
             {"piggybacking", &VerbsOptimizations::piggybacked_credits},
             {"lanes", &VerbsOptimizations::parallel_queue_pairs},
             {"unlocked", &VerbsOptimizations::thread_domain},
             {"cache", &VerbsOptimizations::registration_cache},
             {"hugepages", &VerbsOptimizations::huge_pages}}};
}

// All optimizations but the named ones: "inlining,quiet". Errors: INVALID_ARGUMENT, with the valid
// names.
Result<VerbsOptimizations> optimizations_without(std::string_view names);
// "lists, inlining, ...".
std::string optimization_names();

}  // namespace weft::na
