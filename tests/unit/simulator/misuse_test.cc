// Code in a simulation that would wait for real time, or end the host that runs it: it works on
// virtual time, or ends the program at once with a message.
#include <weft/sim.h>

#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>
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

TEST_CASE("simulation: run() of a host's runtime fails with FAILED_PRECONDITION") {
    Simulation simulation(1);
    simulation.add("server", echo_at("server"));
    const Status status = simulation.runtime("server")->run();
    CHECK(status.code() == Code::failed_precondition);
    CHECK(status.text().find("Simulation::run_until()") != std::string_view::npos);
}

TEST_CASE("simulation: a negative duration counts as zero") {
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
    CHECK(simulation.starts("host") == 3);
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

TEST_CASE("simulation: a wait where no time can pass ends at once with a message") {
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

TEST_CASE("simulation: arm() of a host's runtime ends with a message") {
    check({"arm",
           [] {
               Simulation simulation(1);
               simulation.add("host", no_program);
               (void)simulation.runtime("host")->arm();
           },
           {"Runtime::arm()", "Simulation::run_until()"}});
    check({"arm of a context",
           [] {
               Simulation simulation(1);
               simulation.add("host", no_program);
               (void)simulation.runtime("host")->context(0).arm();
           },
           {"ContextRef::arm()", "Simulation::run_until()"}});
    check({"wait_fd of several contexts",
           [] {
               Simulation simulation(1);
               RuntimeOptions options;
               options.contexts = 2;
               simulation.add("host", no_program, options);
               (void)simulation.runtime("host")->wait_fd();
           },
           {"Runtime::wait_fd()", "Simulation::run_until()"}});
}

TEST_CASE("simulation: an endless block_on or an empty function ends at once with a message") {
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

// Passes a simulation with the host "server" to `make`.
template <class Make>
std::function<void()> with_server(Make make) {
    return [make] {
        Simulation simulation(1);
        simulation.add("server", no_program);
        make(simulation);
    };
}

TEST_CASE("simulation: unknown, duplicate or invalid host names end with a message") {
    const auto add = [](const char* name) {
        return with_server([name](Simulation& to) { to.add(name, no_program); });
    };
    const auto unknown = [](auto call) {
        return with_server([call](Simulation& in) { call(in, std::string("sever")); });
    };
    const sim::Link link;
    const Mistake mistakes[] = {
        {"twice", add("server"), {"Simulation::add()", "'server' is there already"}},
        {"no name", add(""), {"Simulation::add()", "1 to 64 letters"}},
        {"a blank", add("a b"), {"Simulation::add()", "1 to 64 letters"}},
        {"options",
         with_server([](Simulation& to) { to.add("x", no_program, {.heartbeat_interval = -1s}); }),
         {"Simulation::add()", "'x'", "heartbeat_interval"}},
        {"contexts",
         with_server([](Simulation& to) { to.add("x", no_program, {.contexts = 0}); }),
         {"Simulation::add()", "'x'", "RuntimeOptions::contexts is 0"}},
        {"later contexts",
         with_server([](Simulation& to) { to.set_options("server", {.contexts = 0}); }),
         {"Simulation::set_options()", "'server'", "RuntimeOptions::contexts is 0"}},
        {"runtime",
         unknown([](auto& in, auto name) { (void)in.runtime(name); }),
         {"Simulation::runtime()", "no host has the name 'sever' (there are: server)"}},
        {"is_up", unknown([](auto& in, auto name) { (void)in.is_up(name); }), {"no host"}},
        {"starts", unknown([](auto& in, auto name) { (void)in.starts(name); }), {"starts()"}},
        {"act_as", unknown([](auto& in, auto name) { in.act_as(name, [] {}); }), {"act_as()"}},
        {"kill", unknown([](auto& in, auto name) { in.kill(name); }), {"kill()", "no host"}},
        {"crash", unknown([](auto& in, auto name) { in.crash(name); }), {"crash()", "no host"}},
        {"end", unknown([](auto& in, auto name) { in.end(name); }), {"end()", "no host"}},
        {"start", unknown([](auto& in, auto name) { in.start(name); }), {"start()", "no host"}},
        {"pause", unknown([](auto& in, auto name) { in.pause(name); }), {"pause()", "no host"}},
        {"resume", unknown([](auto& in, auto name) { in.resume(name); }), {"resume()"}},
        {"stall", unknown([](auto& in, auto name) { in.stall(name, 0, 1ms); }), {"stall()"}},
        {"slow", unknown([](auto& in, auto name) { in.slow_down(name, 2); }), {"slow_down()"}},
        {"starve",
         unknown([](auto& in, auto name) { in.limit_memory(name, 1); }),
         {"limit_memory()"}},
        {"link from",
         unknown([link](auto& in, auto name) { in.set_link(name, "server", link); }),
         {"Simulation::set_link()", "no host has the name 'sever'"}},
        {"link to",
         unknown([link](auto& in, auto name) { in.set_link("server", name, link); }),
         {"Simulation::set_link()", "no host has the name 'sever'"}},
        {"cut", unknown([](auto& in, auto name) { in.cut("server", name); }), {"cut()"}},
        {"heal", unknown([](auto& in, auto name) { in.heal(name, "server"); }), {"heal()"}},
        {"heard",
         unknown([](auto& in, auto name) { (void)in.last_received("server", name); }),
         {"Simulation::last_received()"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("simulation: values out of range end with a message") {
    const auto set = [](auto change) {
        return with_server([change](Simulation& in) {
            sim::Link link;
            change(link);
            in.set_links(link);
        });
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    const Mistake mistakes[] = {
        {"loss",
         set([](sim::Link& link) { link.loss = 1.5; }),
         {"Simulation::set_links()", "Link::loss", "0 to 1"}},
        {"duplicate", set([](sim::Link& link) { link.duplicate = -0.1; }), {"Link::duplicate"}},
        {"reorder", set([nan](sim::Link& link) { link.reorder = nan; }), {"Link::reorder"}},
        {"damage", set([](sim::Link& link) { link.damage = 2; }), {"Link::damage"}},
        {"hang_up", set([](sim::Link& link) { link.hang_up = 2; }), {"Link::hang_up"}},
        {"latency", set([](sim::Link& link) { link.latency = -1ns; }), {"Link::latency", "24 h"}},
        {"jitter", set([](sim::Link& link) { link.jitter = Duration::max(); }), {"Link::jitter"}},
        {"reorder_by", set([](sim::Link& link) { link.reorder_by = -1s; }), {"Link::reorder_by"}},
        {"give_up", set([](sim::Link& link) { link.give_up_after = -1s; }), {"give_up_after"}},
        {"resend", set([](sim::Link& link) { link.resend_after = 0s; }), {"resend_after"}},
        {"resend_max", set([](sim::Link& link) { link.resend_after_max = 0s; }), {"after_max"}},
        {"rate", set([](sim::Link& link) { link.bytes_per_second = -1; }), {"bytes_per_second"}},
        {"slow", set([](sim::Link& link) { link.bytes_per_second = 1e-9; }), {"1 to 1e15"}},
        {"one link",
         with_server([](Simulation& in) { in.set_link("server", "server", {.loss = 1.01}); }),
         {"Simulation::set_link()", "Link::loss"}},
        {"all links",
         [] { const Simulation simulation(1, {.links = {.loss = -1}}); },
         {"Simulation::Simulation()", "Link::loss"}},
        {"refuse",
         with_server([](Simulation& in) { in.refuse(1.1); }),
         {"Simulation::refuse()", "0 to 1"}},
        {"starve",
         with_server([](Simulation& in) { in.limit_memory("server", -1); }),
         {"Simulation::limit_memory()", "0 to 1"}},
        {"run_until",
         with_server([](Simulation& in) { in.run_until(nullptr, 1s); }),
         {"Simulation::run_until()", "empty"}},
        {"act_as",
         with_server([](Simulation& in) { in.act_as("server", nullptr); }),
         {"Simulation::act_as()", "empty"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("simulation: use on another thread, or its end by its own code, ends with a message") {
    const auto elsewhere = [](auto call) {
        return with_server([call](Simulation& in) { std::thread([&] { call(in); }).join(); });
    };
    const Mistake mistakes[] = {
        {"run_for",
         elsewhere([](Simulation& in) { in.run_for(1s); }),
         {"Simulation::run_for()", "another thread"}},
        {"block_on",
         elsewhere([](Simulation& in) { (void)in.runtime("server")->block_on(sleeps(1s)); }),
         {"another thread"}},
        {"kill",
         elsewhere([](Simulation& in) { in.kill("server"); }),
         {"Simulation::kill()", "another thread"}},
        {"add",
         elsewhere([](Simulation& in) { in.add("x", no_program); }),
         {"Simulation::add()", "another thread"}},
        {"in",
         elsewhere([](Simulation& in) { in.in(1s, [] {}); }),
         {"Simulation::in()", "another thread"}},
        {"its end by what it runs",
         [] {
             auto simulation = std::make_unique<Simulation>(1);
             simulation->in(1s, [&] { simulation.reset(); });
             simulation->run_for(2s);
         },
         {"Simulation::~Simulation()", "return first"}},
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
