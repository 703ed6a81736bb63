// Limits of with_timeout() while a runtime ends.
#include "support/combined.h"

namespace combine_limit_test {

using namespace combine_test;

Task<void> never(Gate& gate, int& alive) {
    const Alive local(alive);
    co_await gate;
}

// Successive limits of tasks that never end; the first limit begins after the runtime's end if the
// coroutine sleeps.
Task<void> limits(Bench& bench, bool sleeps, std::vector<Status>& outcomes) {
    const Alive local(bench.alive);
    Gate first, second, third;
    if (sleeps) outcomes.push_back(co_await sleep_for(1h));
    outcomes.push_back(co_await with_timeout(1h, never(first, bench.alive)));
    outcomes.push_back(co_await with_timeout(1h, never(second, bench.alive)));
    const auto work = [] {};
    co_await offload(work);
    outcomes.push_back(co_await with_timeout(1h, with_timeout(2h, never(third, bench.alive))));
}

TEST_CASE("with_timeout: a wait is cancelled in the last turn of its runtime") {
    const bool sleeps = GENERATE(false, true);
    Alone alone;
    std::vector<Status> outcomes;
    alone.runtime.spawn(limits(alone.bench, sleeps, outcomes));
    alone.rig.run_for(1s);
    CHECK(outcomes.empty());
    alone.rig.runtimes.clear();
    CHECK(alone.bench.alive == 0);
    REQUIRE(outcomes.size() == (sleeps ? 4 : 3));
    for (const Status& outcome : outcomes) {
        CHECK(outcome.code() == Code::cancelled);
        CHECK(outcome.text().find("the runtime is shutting down") != outcome.text().npos);
    }
    for (std::size_t i = sleeps ? 1 : 0; i < outcomes.size(); ++i) {
        CHECK(outcomes[i].effect() == Effect::unknown);
    }
}

Task<Status> sleep(Duration time) { co_return co_await sleep_for(time); }

Task<void> keep_status(Status& into) { into = co_await with_timeout(1h, sleep(2h)); }

TEST_CASE("with_timeout: a task that ends with its runtime returns its outcome before the limit") {
    Alone alone;
    Status outcome;
    alone.runtime.spawn(keep_status(outcome));
    alone.rig.run_for(1s);
    alone.rig.runtimes.clear();
    CHECK(outcome.code() == Code::cancelled);
}

TEST_CASE("with_timeout: coroutines that begin limits without end stop with their runtime") {
    struct {
        Task<void> operator()(int& alive) {
            const Alive local(alive);
            Gate gate;
            while (true) (void)co_await with_timeout(1s, never(gate, alive));
        }
    } for_ever;
    int alive = 0;
    SimRig rig;
    RuntimeOptions options;
    options.log_level = LogLevel::off;
    rig.add("", options).spawn(for_ever(alive));
    rig.run_for(100ms);
    CHECK(alive == 2);
    rig.runtimes.clear();
    CHECK(alive == 0);
}

}  // namespace combine_limit_test
