// Faults that a program injects into its own host, from each kind of code that a simulation runs:
// the host goes down after that code, never during it. Also waits of a paused host.
#include <weft/sim.h>

#include <functional>
#include <memory>
#include <string>

#include <weft/await.h>
#include <weft/group.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace weft::simulation_faults_inside_test {
namespace {

using namespace weft::test;
using sim::Simulation;

std::shared_ptr<void> no_program(Runtime&) { return nullptr; }

// Code of the host that crashes the host first and then still uses it.
struct CrashesItself {
    Simulation simulation{1};
    int ran = 0;

    CrashesItself() { simulation.add("host", no_program); }
    Runtime& host() { return *simulation.runtime("host"); }
    void crash() {
        Runtime& runtime = host();
        simulation.crash("host");
        REQUIRE(simulation.is_up("host"));
        CHECK(runtime.addresses().empty());
        CHECK(runtime.listen("sim://host").ok());
        ++ran;
    }
    void check_down() {
        simulation.run_for(1s);
        CHECK(ran == 1);
        CHECK_FALSE(simulation.is_up("host"));
        simulation.start("host");
        CHECK(simulation.is_up("host"));
    }
};

TEST_CASE("simulation: a crash inside act_as() of the same host takes effect at its end") {
    CrashesItself one;
    one.simulation.act_as("host", [&] { one.crash(); });
    CHECK_FALSE(one.simulation.is_up("host"));
    one.check_down();
}

TEST_CASE("simulation: act_as() inside act_as() leaves the crash to the outer one") {
    CrashesItself one;
    one.simulation.add("other", no_program);
    one.simulation.act_as("host", [&] {
        one.simulation.act_as("other", [&] { one.crash(); });
        CHECK(one.simulation.is_up("host"));
    });
    CHECK_FALSE(one.simulation.is_up("host"));
    one.check_down();
}

TEST_CASE("simulation: an exception leaves act_as(), and its crash takes effect as time passes") {
    CrashesItself one;
    CHECK_THROWS_AS(one.simulation.act_as("host", [&] { one.crash(), throw 1; }), int);
    one.check_down();
}

TEST_CASE("simulation: a crash in a callback of Group::install() takes effect after it") {
    const bool is_meeting = GENERATE(true, false);
    CAPTURE(is_meeting);
    CrashesItself one;
    const GroupView view = GroupView::make("g", 1, {{0, {"sim://x"}}, {1, {"sim://host"}}}).value();
    REQUIRE(one.host().listen("sim://host").ok());
    REQUIRE(one.host().join(view, 1).ok());
    const Group group = one.host().group(view).value();
    const auto crash = [&] {
        one.simulation.crash("host");
        CHECK(one.simulation.is_up("host"));
        ++one.ran;
    };
    if (is_meeting) {
        group.all_gather("m", {}, {}, [&](const GroupOutcome&) { crash(); });
    } else {
        group.on_change([&](const MemberChange&) { crash(); });
    }
    one.simulation.in(1ms,
                      [&] { CHECK(group.install(evict(view, is_meeting ? 1 : 0).value()).ok()); });
    one.check_down();
}

TEST_CASE("simulation: a crash in turn_until(), block_on() and a turn takes effect after them") {
    CrashesItself one;
    CHECK(one.host().turn_until([&] { return one.simulation.crash("host"), ++one.ran, true; }, 1s));
    one.check_down();
    struct {
        Task<Status> operator()(CrashesItself& one) {
            one.crash();
            co_return co_await sleep_for(1s);
        }
    } crashes;
    one.ran = 0;
    CHECK(one.host().block_on(crashes(one)).code() == Code::cancelled);
    one.check_down();
    one.ran = 0;
    one.host().executor().post([&one] { one.crash(); });
    one.check_down();
}

// ---- paused hosts ------------------------------------------------------------------------------

Task<Status> sleeps(Duration time) { co_return co_await sleep_for(time); }

TEST_CASE("simulation: block_on of a host that is paused and later resumed ends") {
    Simulation simulation(1);
    simulation.add("host", no_program);
    simulation.add("other", no_program);
    Runtime& host = *simulation.runtime("host");
    simulation.in(1s, [&] { simulation.pause("host"); });
    simulation.in(40h, [&] { simulation.resume("host"); });
    CHECK(host.block_on(sleeps(2s)).ok());
    CHECK(simulation.now() - TimePoint() >= 40h);
    simulation.pause("host");  // Resumed by another host, without simulation.in().
    struct {
        Task<void> operator()(Simulation& simulation) {
            (void)co_await sleep_for(30min);
            simulation.resume("host");
        }
    } resumes;
    simulation.runtime("other")->spawn(resumes(simulation));
    CHECK(host.block_on(sleeps(2s)).ok());
    simulation.pause("host");
    CHECK_FALSE(host.turn_until([] { return false; }, 5h));
}

TEST_CASE("simulation: a wait of a paused host, or run_for() in act_as(), ends with a message") {
    const auto paused = [](auto wait) {
        return [wait] {
            Simulation simulation(1);
            // Events that never end.
            const std::function<void()> ticks = [&] { simulation.in(1s, ticks); };
            ticks();
            simulation.add("host", no_program);
            simulation.pause("host");
            wait(*simulation.runtime("host"));
        };
    };
    const Mistake mistakes[] = {
        {"block_on",
         paused([](Runtime& host) { (void)host.block_on(sleeps(1s)); }),
         {"block_on()", "'host'", "is paused", "Simulation::resume()"}},
        {"turn_until",
         paused([](Runtime& host) { host.turn_until([] { return false; }, Duration::max()); }),
         {"turn_until()", "'host'", "is paused"}},
        {"block_on where nothing goes on",
         [] {
             Simulation simulation(1);
             simulation.add("host", no_program);
             simulation.pause("host");
             (void)simulation.runtime("host")->block_on(sleeps(1s));
         },
         {"block_on()", "'host'", "is paused"}},
        {"run_for in act_as",
         [] {
             Simulation simulation(1);
             simulation.add("host", no_program);
             simulation.act_as("host", [&] { simulation.run_for(1s); });
         },
         {"Simulation::run_for()", "act_as()", "co_await"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

}  // namespace
}  // namespace weft::simulation_faults_inside_test
