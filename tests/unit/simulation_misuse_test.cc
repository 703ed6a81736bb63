// What programs and tests do in a simulation that would wait for real time, or pull a host out from
// under its own program: it works on virtual time, or ends at once with a sentence.
#include <weft/sim.h>

#include <chrono>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/offload.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace simulation_misuse_test {

using namespace weft;
using namespace weft::test;
using weft::sim::Simulation;

constexpr unsigned long_enough_s = 10;  // For what does not hang.

std::shared_ptr<void> no_program(Runtime&) { return nullptr; }

Simulation::Program echo_at(const std::string& name) {
    return [name](Runtime& runtime) {
        auto service = std::make_shared<Echo>();
        REQUIRE(runtime.serve(*service, "sim://" + name).ok());
        return service;
    };
}

Task<Status> asks(Channel channel) {
    co_return (co_await weft::call(channel, echo_method, {}, {.timeout = 5s})).status();
}

Task<Status> sleeps(Duration time) { co_return co_await sleep_for(time); }

TEST_CASE("simulation: block_on of a host's runtime lets virtual time pass") {
    Simulation simulation(1);
    simulation.add("server", echo_at("server"));
    simulation.add("client", no_program);
    Runtime& client = *simulation.runtime("client");
    const TimePoint start = simulation.now();
    CHECK(client.block_on(sleeps(20h)).ok());
    CHECK(simulation.now() - start >= 20h);
    CHECK(client.block_on(asks(client.connect("sim://server").value())).ok());
    simulation.in(1s, [&] { simulation.crash("client"); });
    CHECK(client.block_on(sleeps(1h)).code() == Code::cancelled);
    CHECK_FALSE(simulation.is_up("client"));
}

TEST_CASE("simulation: turn_until of a host's runtime lets virtual time pass") {
    Simulation simulation(1);
    simulation.add("server", echo_at("server"));
    simulation.add("client", no_program);
    Runtime& client = *simulation.runtime("client");
    const Channel channel = client.connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    CHECK(client.turn_until([&] { return outcome.completions > 0; }, 5s));
    CHECK(outcome.reply == "x");
    const TimePoint start = simulation.now();
    CHECK_FALSE(client.turn_until([] { return false; }, 30min));
    CHECK(simulation.now() - start == 30min);
}

TEST_CASE("simulation: run() of a host's runtime is refused with a sentence") {
    Simulation simulation(1);
    simulation.add("server", echo_at("server"));
    const Status status = simulation.runtime("server")->run();
    CHECK(status.code() == Code::failed_precondition);
    CHECK(status.text().find("Simulation::run_until()") != std::string_view::npos);
}

TEST_CASE("simulation: a negative time is none") {
    Simulation simulation(1);
    simulation.add("server", echo_at("server"));
    simulation.run_for(1s);
    const TimePoint before = simulation.now();
    simulation.run_for(-1s);
    CHECK(simulation.now() == before);
    CHECK_FALSE(simulation.run_until([] { return false; }, -1h));
    CHECK(simulation.now() == before);
    bool ran = false;
    simulation.in(-1s, [&] { ran = true; });
    simulation.run_for(0s);
    CHECK(ran);
    CHECK(simulation.now() == before);
}

TEST_CASE("simulation: a program may crash, kill, end or restart its own host") {
    Simulation simulation(1);
    const auto fault = GENERATE(&Simulation::crash, &Simulation::kill);
    int starts = 0;
    simulation.add("host", [&](Runtime& runtime) {
        auto service = std::make_shared<Echo>();
        REQUIRE(runtime.serve(*service, "sim://host").ok());
        if (++starts < 3) {
            (simulation.*fault)("host");
            simulation.start("host");
        }
        return service;
    });
    CHECK(starts == 3);
    CHECK(simulation.is_up("host"));
    CHECK(simulation.lives("host") == 3);
    simulation.add("client", no_program);
    Runtime& client = *simulation.runtime("client");
    CHECK(client.block_on(asks(client.connect("sim://host").value())).ok());
    simulation.add("ends", [&](Runtime&) {
        simulation.end("ends");
        return nullptr;
    });
    simulation.run_for(10s);
    CHECK_FALSE(simulation.is_up("ends"));
}

struct Mistake {
    const char* name;
    std::function<void()> make;
    std::vector<std::string> words;
};

void check(const Mistake& mistake) {
    INFO(mistake.name);
    const Said said = said_by_child([&mistake] {
        ::alarm(long_enough_s);
        mistake.make();
        return 0;
    });
    CAPTURE(said.text);
    CHECK(said.end == -SIGABRT);
    for (const std::string& word : mistake.words) CHECK(said.text.find(word) != word.npos);
}

TEST_CASE("simulation: what would wait where no time passes ends at once, with a sentence") {
    const Mistake mistakes[] = {
        {"run_for in a program",
         [] {
             Simulation simulation(1);
             simulation.add("host", [&](Runtime&) {
                 simulation.run_for(1s);
                 return nullptr;
             });
         },
         {"Simulation::run_for()", "co_await"}},
        {"block_on in a program",
         [] {
             Simulation simulation(1);
             simulation.add("host", [&](Runtime& runtime) {
                 (void)runtime.block_on(sleeps(1s));
                 return nullptr;
             });
         },
         {"block_on()", "co_await"}},
        {"block_on in a turn of the same host",
         [] {
             Simulation simulation(1);
             simulation.add("host", [&](Runtime& runtime) {
                 runtime.executor().post([&] { (void)runtime.block_on(sleeps(1s)); });
                 return nullptr;
             });
             simulation.run_for(1s);
         },
         {"Runtime::block_on()", "co_await"}},
        {"block_on in a turn of another host",
         [] {
             Simulation simulation(1);
             simulation.add("other", no_program);
             simulation.add("host", [&](Runtime& runtime) {
                 runtime.executor().post(
                     [&] { (void)simulation.runtime("other")->block_on(sleeps(1s)); });
                 return nullptr;
             });
             simulation.run_for(1s);
         },
         {"block_on()", "co_await"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

struct Never {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<>) const {}
    void await_resume() const {}
};

Task<void> waits_for_ever() { co_await Never(); }

TEST_CASE("simulation: what never comes, and an empty function, end at once, with a sentence") {
    const Mistake mistakes[] = {
        {"block_on for what never comes",
         [] {
             Simulation simulation(1);
             simulation.add("host", no_program);
             simulation.runtime("host")->block_on(waits_for_ever());
         },
         {"Runtime::block_on()", "never comes"}},
        {"an empty program",
         [] {
             Simulation simulation(1);
             simulation.add("host", Simulation::Program());
         },
         {"Simulation::add()", "empty"}},
        {"an empty function that is to run later",
         [] {
             Simulation simulation(1);
             simulation.in(1s, nullptr);
             simulation.run_for(2s);
         },
         {"Simulation::in()", "empty"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("simulation: a thread's sleep in offloaded work is logged, once") {
    std::vector<std::string> lines;
    Simulation simulation(1);
    RuntimeOptions options;
    options.log_sink = [&](LogLevel, std::string_view line) { lines.emplace_back(line); };
    simulation.add("host", no_program, options);
    Runtime& runtime = *simulation.runtime("host");
    for (int i = 0; i < 2; ++i) {
        runtime.executor().offload([] { std::this_thread::sleep_for(150ms); });
    }
    runtime.executor().offload([] {});
    const TimePoint start = simulation.now();
    simulation.run_for(1ms);
    CHECK(simulation.now() - start == 1ms);
    REQUIRE(lines.size() == 1);
    CHECK(lines[0].find("weft::sleep_for()") != std::string::npos);
}

}  // namespace simulation_misuse_test
