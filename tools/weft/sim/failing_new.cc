// For programs that run simulations: allocations that may fail do, on hosts that are starved
// (weft/sim.h). All others are what they were.
#include <new>

#include <weft/sim.h>

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
    if (weft::sim::allocation_fails()) return nullptr;
    try {
        return operator new(bytes);
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void* operator new[](std::size_t bytes, const std::nothrow_t& may_fail) noexcept {
    return operator new(bytes, may_fail);
}
