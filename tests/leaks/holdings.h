// The resources that this process holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "leaks/live_memory.h"

namespace weft::test {

// Numbers only, so that a Holdings owns no resource itself.
struct Holdings {
    std::size_t descriptors = 0;
    std::size_t threads = 0;
    std::size_t shared_mappings = 0;  // Memory files: arenas, rings, tables of regions.
    std::size_t other_mappings = 0;   // Programs, stacks, heaps.
    LiveMemory live;                  // By the C++ operators.
    std::ptrdiff_t c_bytes = 0;       // By malloc in C: libfabric, the C library itself.
    std::size_t resident_kib = 0;

    static Holdings now();
    // True: the kernel's objects are the same.
    bool same_objects(const Holdings& other) const {
        return descriptors == other.descriptors && threads == other.threads &&
               shared_mappings == other.shared_mappings;
    }
    // True: the kernel's objects are the same or fewer.
    bool has_no_more_objects(const Holdings& other) const {
        return descriptors <= other.descriptors && threads <= other.threads &&
               shared_mappings <= other.shared_mappings;
    }
    std::string text() const;
};

// Closes this process's accepted sockets of a local port, and counts them. libfabric 1.17 leaks
// such a socket when its endpoint closes before it has read the socket's first bytes.
std::size_t close_forgotten(std::uint16_t port);

// Every descriptor and memory file by name, one per line, to find an excess one.
std::string names_of_objects();

}  // namespace weft::test
