// For programs that run simulations: allocations that may fail do, on hosts that are starved
// (weft/sim.h). All others are what they were; so are arrays, which tables of records grow by: a
// transfer that finds no record does not give back yet what was lent to it.
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
