// One host of a simulation, and the process on it while there is one.
#pragma once

#include <weft/sim.h>

#include "api/node.h"
#include "base/random.h"
#include "na/sim/scarcity.h"

namespace weft::sim {

struct Host {
    std::string name;
    Simulation::Program program;
    RuntimeOptions options;
    base::SeededRandom seeds{0};  // One for each life.
    std::uint32_t lives = 0;
    bool is_paused = false;
    unsigned slowness = 1;
    na::sim::Scarcity* scarcity = nullptr;
    TimePoint busy_until{};  // A turn takes its time.
    // Destroyed in the order from the last to the first.
    std::shared_ptr<void> state;
    std::unique_ptr<Runtime> process;

    core::Context& context() const { return process->node().context; }
    // When it has something to do, unless something comes in before.
    TimePoint due(TimePoint now) const;
};

inline TimePoint Host::due(TimePoint now) const {
    if (!process || is_paused) return never;
    const TimePoint at = context().has_work() ? now : context().next_deadline();
    return at == never ? never : std::max(at, busy_until);
}

}  // namespace weft::sim
