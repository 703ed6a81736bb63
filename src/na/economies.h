// How a transport spares an RDMA card, each a mechanism of its own that can be left out, to see
// what it is worth (docs/performance.md has the table). All of them are on unless somebody
// measures.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include <weft/result.h>

namespace weft::na {

struct Economies {
    bool lists = true;      // What leaves in a turn is one list of work requests: one doorbell.
    bool inlining = true;   // Small messages go inside their work request: no fetch by the card.
    bool quiet = true;      // One send in sixteen gives a completion.
    bool riding = true;     // Credits ride in the immediate data of what is sent anyway.
    bool lanes = true;      // Transfers of one peer take several queue pairs.
    bool unlocked = true;   // The driver's objects belong to one thread: it takes no lock.
    bool cache = true;      // Registrations of the arena's memory are kept.
    bool hugepages = true;  // Messages are in memory of 2 MiB pages.

    struct Row {
        std::string_view name;
        bool Economies::*is_on;
    };
    static constexpr std::array<Row, 8> rows();
};

constexpr std::array<Economies::Row, 8> Economies::rows() {
    return {{{"lists", &Economies::lists},
             {"inlining", &Economies::inlining},
             {"quiet", &Economies::quiet},
             {"riding", &Economies::riding},
             {"lanes", &Economies::lanes},
             {"unlocked", &Economies::unlocked},
             {"cache", &Economies::cache},
             {"hugepages", &Economies::hugepages}}};
}

// All but those named: "inlining,quiet". Errors: INVALID_ARGUMENT, with the names there are.
Result<Economies> economies_without(std::string_view names);
// "lists, inlining, ...".
std::string economy_names();

}  // namespace weft::na
