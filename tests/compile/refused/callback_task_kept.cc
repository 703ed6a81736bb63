// The same for callbacks that are stored and copied.
// EXPECT this callback returns a task or an operation
#include <weft/sim.h>

void plan(weft::sim::Simulation& simulation, weft::Runtime& runtime) {
    const auto work = []() -> weft::Task<void> { co_return; };
#ifdef ALLOWED
    simulation.in(weft::Duration(1), [&] { runtime.spawn(work); });
#else
    simulation.in(weft::Duration(1), work);
    (void)runtime;
#endif
}
