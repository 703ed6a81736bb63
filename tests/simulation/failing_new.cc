// For programs that run simulations: allocations that may fail do so on starved hosts (weft/sim.h).
// All others are unchanged; so are arrays, by which tables of records grow: a transfer without a
// record does not return yet what was lent to it.
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
