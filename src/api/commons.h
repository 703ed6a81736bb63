// What all contexts of a runtime share: its identity, its memory, its options, its log and the
// threads of offload().
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <vector>

#include <weft/options.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/random.h"
#include "bulk/regions.h"
#include "core/budget.h"
#include "core/offload_pool.h"
#include "na/arena.h"
#include "na/registry.h"
#include "rpc/channel_legs.h"

namespace weft::api {

// The parts that a simulation or a test replaces.
struct RuntimeParts {
    std::shared_ptr<base::Clock> clock;
    std::shared_ptr<base::Random> random;
    // For each context after the first; empty: `random`, which any thread may use then.
    std::function<std::shared_ptr<base::Random>()> more_random;
    std::shared_ptr<na::Registry> providers;
    // In simulations: lets virtual time pass until done(), with turns of all hosts. False: `limit`
    // passed first, or no event was left.
    std::function<bool(const std::function<bool()>& done, Duration limit)> advance_time;
};

// The production parts: steady clock, kernel randomness, the transports of this build.
RuntimeParts production_parts();

// Thread: any.
class Node;

struct Commons {
    Commons(RuntimeOptions options, LogSink sink, RuntimeParts parts);

    std::uint16_t contexts() const { return static_cast<std::uint16_t>(options.contexts); }

    const RuntimeOptions options;  // Without log_sink.
    const RuntimeParts parts;
    base::Log log;
    const std::shared_ptr<na::Arena> arena;
    const na::Incarnation incarnation;
    core::OffloadPool pool;
    // Of several contexts; nullptr: there is one.
    const std::unique_ptr<bulk::RegionFamily> regions;
    const std::shared_ptr<core::Budgets> budgets;
    // Of the contexts, in their order; constant once the runtime is made.
    std::vector<rpc::ContextParts> layers;
    std::vector<Node*> nodes;
    // exit() has ended the turns and left all else: a wait for a turn never ends.
    std::atomic<bool> is_abandoned{false};
};

}  // namespace weft::api
