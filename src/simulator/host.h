// One host of a simulation, and the process on it while there is one.
#pragma once

#include <optional>

#include <weft/sim.h>

#include "api/runtime_impl.h"
#include "base/assert.h"
#include "base/random.h"
#include "na/sim/resource_faults.h"
#include "simulator/validate.h"

namespace weft::sim {

struct Host {
    // ---- what it runs
    std::string name;
    Simulation::Program program;
    RuntimeOptions options;
    base::SeededRandom seeds{0};  // One seed for each life.

    // ---- when it runs
    std::uint32_t starts = 0;
    bool is_paused = false;
    unsigned slowness = 1;
    na::sim::ResourceFaults* resource_faults = nullptr;
    TimePoint busy_until{};  // The end of its last turn.
    // Its first timer, as of the state `timer_read_in` of the world: kept, because reading it is
    // slow.
    TimePoint timer_due = never;
    std::uint64_t timer_read_in = 0;

    // ---- the process
    bool restart_pending = false;  // Once the host has ended.
    std::shared_ptr<void> state;
    // One object for all lives, because programs keep references to it: moved from while the host
    // is down, or once its program has moved it.
    std::optional<Runtime> process;
    std::shared_ptr<api::RuntimeImpl> runtime_impl;  // nullptr: it is down.

    bool is_up() const { return runtime_impl != nullptr; }
    core::Context& context() const {
        WEFT_DCHECK(is_up());
        return runtime_impl->node.context;
    }
    // When the host has work, without earlier arrivals. `world`: another number each time that
    // timers of hosts may have changed other than by their own turns.
    TimePoint due(TimePoint now, std::uint64_t world);
};

inline TimePoint Host::due(TimePoint now, std::uint64_t world) {
    if (!is_up() || is_paused) return never;
    if (runtime_impl->is_down()) abort_runtime_taken(name);
    if (context().has_work()) return std::max(now, busy_until);
    if (timer_read_in != world) {
        timer_due = context().timers().next_deadline();
        timer_read_in = world;
    }
    TimePoint at = timer_due;
    for (const auto& slot : context().endpoints())
        at = std::min(at, slot->endpoint->next_deadline());
    return at == never ? never : std::max(at, busy_until);
}

}  // namespace weft::sim
