// One host of a simulation, and the process on it while there is one.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include <weft/sim.h>

#include "api/runtime_impl.h"
#include "base/assert.h"
#include "base/random.h"
#include "na/sim/resource_faults.h"
#include "simulator/validate.h"

namespace weft::sim {

// A context of a host's process: as a thread of its own, it turns while others are busy.
struct Unit {
    api::Node* node;
    TimePoint busy_until{};  // The end of its last turn.
    TimePoint stalled_until = TimePoint::min();
    // Its first timer, as of the state `timer_read_in` of the world: kept, because reading it is
    // slow.
    TimePoint timer_due = never;
    std::uint64_t timer_read_in = 0;
    // When it begins work that it was given; `never`: it has none. With one context that is at
    // once; a context that others wake begins a little later.
    TimePoint work_due = never;

    core::Context& context() const { return node->context; }
    // When it has work, without earlier arrivals. `world`: another number each time that timers may
    // have changed other than by its own turns. `wake_up`: how long it takes to begin.
    template <class WakeUp>
    TimePoint due(TimePoint now, std::uint64_t world, WakeUp&& wake_up);
};

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
    std::vector<Unit> units;  // Of its contexts, while it is up.

    // ---- the process
    bool restart_pending = false;  // Once the host has ended.
    std::shared_ptr<void> state;
    // One object for all lives, because programs keep references to it: moved from while the host
    // is down, or once its program has moved it.
    std::optional<Runtime> process;
    std::shared_ptr<api::RuntimeImpl> runtime_impl;  // nullptr: it is down.

    bool is_up() const { return runtime_impl != nullptr; }
    // Not a context that is due.
    bool is_idle() const { return !is_up() || is_paused; }
    void begin_life(std::shared_ptr<api::RuntimeImpl> impl, TimePoint now) {
        WEFT_ASSERT(impl && !is_up());
        runtime_impl = std::move(impl);
        units.clear();
        for (const auto& node : runtime_impl->nodes)
            units.push_back({.node = node.get(), .busy_until = now});
    }
};

template <class WakeUp>
TimePoint Unit::due(TimePoint now, std::uint64_t world, WakeUp&& wake_up) {
    const TimePoint earliest = std::max(busy_until, stalled_until);
    if (context().has_work()) {
        if (work_due == never) work_due = saturating_add(now, wake_up());
        return std::max({now, work_due, earliest});
    }
    work_due = never;
    if (timer_read_in != world) {
        timer_due = context().timers().next_deadline();
        timer_read_in = world;
    }
    TimePoint at = timer_due;
    for (const auto& slot : context().endpoints())
        at = std::min(at, slot->endpoint->next_deadline());
    return at == never ? never : std::max(at, earliest);
}

}  // namespace weft::sim
