// One host of a simulation, and the process on it while there is one.
#pragma once

#include <optional>

#include <weft/sim.h>

#include "api/node.h"
#include "base/random.h"
#include "na/sim/scarcity.h"
#include "sim/validate.h"

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
    // Its first timer, as it was when others were in that state: kept, for asking takes its time.
    TimePoint timer_due = never;
    std::uint64_t timer_known_in = 0;
    bool starts_again = false;  // Once it has ended.
    std::shared_ptr<void> state;
    // One for all lives, to which programs keep references: moved from while the host is down, or
    // once its program has taken it.
    std::optional<Runtime> process;
    std::shared_ptr<api::Node> node;  // nullptr: it is down.

    bool is_up() const { return node != nullptr; }
    core::Context& context() const { return node->context; }
    // When it has something to do, unless something comes in before. `world`: another number each
    // time that the timers of hosts may have changed but by their own turns.
    TimePoint due(TimePoint now, std::uint64_t world);
};

inline TimePoint Host::due(TimePoint now, std::uint64_t world) {
    if (!is_up() || is_paused) return never;
    if (node->is_down()) refuse_taken(name);
    if (context().has_work()) return std::max(now, busy_until);
    if (timer_known_in != world) {
        timer_due = context().timers().next_deadline();
        timer_known_in = world;
    }
    TimePoint at = timer_due;
    for (const auto& slot : context().endpoints())
        at = std::min(at, slot->endpoint->next_deadline());
    return at == never ? never : std::max(at, busy_until);
}

}  // namespace weft::sim
