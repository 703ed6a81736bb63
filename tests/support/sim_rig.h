// Whole runtimes in one thread over the simulated network: the production code of every layer, on a
// clock that moves only when the rig moves it.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "base/manual_clock.h"
#include "base/random.h"
#include "na/sim/sim.h"

namespace weft::test {

class SimRig {
  public:
    explicit SimRig(std::uint64_t seed = 1, na::sim::WorldOptions network = {})
        : clock(std::make_shared<base::ManualClock>()),
          random(std::make_shared<base::SeededRandom>(seed)),
          world(std::make_shared<na::sim::World>(*random, network, clock->now())) {}

    // A runtime listening as sim://name (not listening when the name is empty).
    Runtime& add(const std::string& name, RuntimeOptions options = {});

    // Turns every runtime, moving the clock to the next event, until `done()` or until `limit` of
    // virtual time has passed (false).
    bool run_until(Function<bool()> done, Duration limit = 60s);
    // Runs until nothing more happens at this instant.
    void run_until_idle() {
        run_until([] { return false; }, 0ns);
    }
    void run_for(Duration time) {
        run_until([] { return false; }, time);
    }
    // The process ends without closing its connections.
    void kill(const std::string& name) { world->kill(name); }

    std::shared_ptr<base::ManualClock> clock;
    std::shared_ptr<base::SeededRandom> random;
    std::shared_ptr<na::sim::World> world;
    std::vector<std::unique_ptr<Runtime>> runtimes;
};

}  // namespace weft::test
