// What this process holds of the machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "leaks/live_memory.h"

namespace weft::test {

// Numbers only, so that keeping one holds nothing itself.
struct Holdings {
    std::size_t descriptors = 0;
    std::size_t threads = 0;
    std::size_t shared_mappings = 0;  // Of memory files: arenas, rings, tables of regions.
    std::size_t other_mappings = 0;   // Programs, stacks, heaps.
    LiveMemory live;                  // Of the C++ operators.
    std::ptrdiff_t c_bytes = 0;       // Of malloc for C: libfabric's, the C library's own.
    std::size_t resident_kib = 0;

    static Holdings now();
    // The kernel's part, which is the same or is not.
    bool same_objects(const Holdings& other) const {
        return descriptors == other.descriptors && threads == other.threads &&
               shared_mappings == other.shared_mappings;
    }
    // Of that part; some of it may have gone.
    bool has_no_more_objects(const Holdings& other) const {
        return descriptors <= other.descriptors && threads <= other.threads &&
               shared_mappings <= other.shared_mappings;
    }
    std::string text() const;
};

// Closes this process's sockets at that port of ours, and counts them. libfabric 1.17 forgets those
// that it has accepted when their endpoint goes before it has read their first words.
std::size_t close_forgotten(std::uint16_t port);

// Every descriptor and memory file by name, one a line, for who looks for one too many.
std::string names_of_objects();

}  // namespace weft::test
