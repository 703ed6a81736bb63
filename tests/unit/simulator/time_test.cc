// Virtual time: it never goes back, weft::now() returns it in all code that a simulation runs, and
// an exception of a program leaves the simulation usable.
#include <weft/sim.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace simulation_time_test {

using namespace weft;
using namespace weft::test;
using weft::sim::Simulation;

std::shared_ptr<void> no_program(Runtime&) { return nullptr; }

TEST_CASE("simulation: a run inside a run that goes further does not turn time back") {
    Simulation simulation(1);
    simulation.add("host", no_program);
    const TimePoint start = simulation.now();
    int asked = 0;
    SECTION("in the function of run_until") {
        CHECK_FALSE(simulation.run_until(
            [&] {
                if (++asked == 1) simulation.run_for(10s);
                return false;
            },
            1s));
    }
    SECTION("in the function of in()") {
        simulation.in(500ms, [&] { simulation.run_for(9500ms); });
        bool ran = false;
        simulation.in(600ms, [&] { ran = simulation.now() - start == 600ms; });
        simulation.run_for(1s);
        CHECK(ran);
    }
    SECTION("block_on in the function of in()") {
        struct {
            Task<Status> operator()() { co_return co_await sleep_for(9500ms); }
        } sleeps;
        simulation.in(500ms, [&] { CHECK(simulation.runtime("host")->block_on(sleeps()).ok()); });
        simulation.run_for(1s);
    }
    CHECK(simulation.now() - start >= 10s);
    CHECK(simulation.now() - start < 11s);
}

// Compares now() in its destructor.
struct AsksAtEnd {
    const Simulation& simulation;
    bool& is_virtual;
    AsksAtEnd(const Simulation& in, bool& into) : simulation(in), is_virtual(into) {}
    AsksAtEnd(const AsksAtEnd&) = delete;
    ~AsksAtEnd() { is_virtual = now() == simulation.now(); }
};

TEST_CASE("simulation: now() returns virtual time in all code of the simulation, and only there") {
    Simulation simulation(1);
    simulation.add("early", no_program);
    simulation.run_for(5h);
    const auto is_virtual = [&] { return now() == simulation.now(); };
    std::vector<bool> right;
    const auto ask = [&] { right.push_back(is_virtual()); };
    bool at_end = false;
    simulation.add("host", [&](Runtime& runtime) {
        ask();
        runtime.executor().post(ask);
        runtime.executor().offload(ask);
        return std::make_shared<AsksAtEnd>(simulation, at_end);
    });
    simulation.in(1s, ask);
    simulation.run_until([&] { return ask(), simulation.now() - TimePoint() > 5h + 3s; }, 10s);
    simulation.act_as("host", ask);
    struct {
        Task<bool> operator()(const Simulation& simulation) {
            const bool before = now() == simulation.now();
            (void)co_await sleep_for(1s);
            co_return before&& now() == simulation.now();
        }
    } sleeps;
    right.push_back(simulation.runtime("host")->block_on(sleeps(simulation)));
    simulation.runtime("host")->turn_until([&] { return ask(), true; }, 1s);
    CHECK(right.size() >= 8);
    for (std::size_t i = 0; i < right.size(); ++i) {
        CAPTURE(i);
        CHECK(right[i]);
    }
    simulation.crash("host");
    CHECK(at_end);
    at_end = false;
    simulation.start("host");
    CHECK(right.back());
    {
        Simulation other(2);
        other.in(1s, [&] { right.push_back(now() == other.now()); });
        simulation.in(1s, [&] { other.run_for(2s), ask(); });
        simulation.run_for(2s);
        CHECK(right[right.size() - 2]);
        CHECK(right.back());
    }
    simulation.crash("host");  // While `at_end` exists, which AsksAtEnd writes.
    CHECK(std::abs((now() - TimePoint(std::chrono::steady_clock::now())) / 1ms) < 1000);
}

struct Broken : std::runtime_error {
    Broken() : runtime_error("broken") {}
};

TEST_CASE("simulation: an exception of a host's program reaches the code that started the host") {
    Simulation simulation(1);
    int starts = 0;
    bool throws = true;
    const auto program = [&](Runtime& runtime) -> std::shared_ptr<void> {
        ++starts;
        auto service = std::make_shared<Echo>();
        REQUIRE(runtime.serve(*service, "sim://host").ok());
        if (throws) throw Broken();
        return service;
    };
    CHECK_THROWS_AS(simulation.add("host", program), Broken);
    CHECK_FALSE(simulation.is_up("host"));
    CHECK_THROWS_AS(simulation.start("host"), Broken);
    simulation.in(1s, [&] { simulation.start("host"); });
    CHECK_THROWS_AS(simulation.run_for(2s), Broken);
    CHECK(starts == 3);
    CHECK_FALSE(simulation.is_up("host"));

    // Started in a turn of another host, with a change after it.
    simulation.add("other", no_program);
    simulation.add("third", no_program);
    simulation.runtime("other")->executor().post([&] {
        simulation.start("host");
        simulation.kill("third");
    });
    CHECK_THROWS_AS(simulation.run_for(1s), Broken);
    simulation.run_for(1s);
    CHECK_FALSE(simulation.is_up("third"));

    // Started during block_on(); the awaited task ends first.
    struct {
        Task<void> operator()(bool& has_slept) {
            (void)co_await sleep_for(2s);
            has_slept = true;
        }
    } sleeps;
    bool has_slept = false;
    simulation.in(1s, [&] { simulation.start("host"); });
    CHECK_THROWS_AS(simulation.runtime("other")->block_on(sleeps(has_slept)), Broken);
    CHECK(has_slept);

    throws = false;
    simulation.start("host");
    CHECK(simulation.is_up("host"));
    CHECK(simulation.starts("host") == 6);
    const Channel channel = simulation.runtime("other")->connect("sim://host").value();
    CallOutcome outcome;
    channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    CHECK(simulation.run_until([&] { return outcome.completions > 0; }, 5s));
    CHECK(outcome.reply == "x");
}

TEST_CASE("simulation: an exception of a function of in() or run_until() leaves it usable") {
    Simulation simulation(1);
    simulation.add("host", no_program);
    bool ran = false;
    simulation.in(1s, [] { throw Broken(); });
    simulation.in(1s, [&] { ran = true; });
    CHECK_THROWS_AS(simulation.run_for(2s), Broken);
    CHECK_THROWS_AS(simulation.run_until([]() -> bool { throw Broken(); }, 2s), Broken);
    simulation.run_for(2s);
    CHECK(ran);
    CHECK(std::abs((now() - TimePoint(std::chrono::steady_clock::now())) / 1ms) < 1000);
}

TEST_CASE("simulation: a host that is added in a turn or a program starts after it") {
    Simulation simulation(1);
    bool was_up = true;
    simulation.add("first", [&](Runtime& runtime) -> std::shared_ptr<void> {
        simulation.add("second", no_program);
        was_up = simulation.is_up("second");
        runtime.executor().post([&] { simulation.add("third", no_program); });
        return nullptr;
    });
    CHECK_FALSE(was_up);
    CHECK(simulation.is_up("second"));
    simulation.run_for(1s);
    CHECK(simulation.is_up("third"));
}

// Ends with a host; `act` calls functions that are not allowed between turns.
struct ActsAtEnd {
    std::function<void()> act;
    explicit ActsAtEnd(std::function<void()> with) : act(std::move(with)) {}
    ActsAtEnd(const ActsAtEnd&) = delete;
    ~ActsAtEnd() { act(); }
};

TEST_CASE("simulation: code that a host's end runs may change hosts but not let time pass") {
    {
        bool was_up = false;
        Simulation simulation(1);
        simulation.add("other", no_program);
        simulation.add("host", [&](Runtime&) {
            return std::make_shared<ActsAtEnd>([&] {
                simulation.crash("other");
                was_up = simulation.is_up("other");
                simulation.start("host");
            });
        });
        simulation.crash("host");
        CHECK(was_up);
        CHECK_FALSE(simulation.is_up("other"));
        CHECK(simulation.is_up("host"));
    }
    const ChildOutput output = output_of_child([] {
        Simulation simulation(1);
        simulation.add("host", [&](Runtime&) {
            return std::make_shared<ActsAtEnd>([&] { simulation.run_for(1s); });
        });
        simulation.crash("host");
        return 0;
    });
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find("Simulation::run_for()") != output.text.npos);
}

TEST_CASE("simulation: messages that fill a connection flow at its rate without heartbeat waits") {
    Simulation simulation(1);
    simulation.add("server", [](Runtime& runtime) {
        auto echo = std::make_shared<Echo>();
        REQUIRE(runtime.serve(*echo, "sim://server").ok());
        return echo;
    });
    simulation.add("client", no_program);
    const Channel channel = simulation.runtime("client")->connect("sim://server").value();
    const auto time_of = [&](int calls, std::size_t bytes) {
        const std::string body(bytes, 'x');
        int ok = 0;
        const TimePoint begin = simulation.now();
        for (int i = 0; i < calls; ++i) {
            channel.call(echo_method, as_bytes(body), {.timeout = 3s},
                         [&](const Status& status, ByteView) { ok += status.ok(); });
        }
        REQUIRE(simulation.run_until([&] { return ok == calls; }, 5s));
        return simulation.now() - begin;
    };
    time_of(1, 0);  // Connects.
    CHECK(time_of(1, 60'000) < 1ms);
    CHECK(time_of(10, 20'000) < 1ms);
    CHECK(time_of(50, 20'000) < 10ms);
    CHECK(time_of(200, 10'000) < 10ms);
}

}  // namespace simulation_time_test
