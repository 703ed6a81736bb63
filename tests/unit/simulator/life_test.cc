// A host's runtime through its lives, and hosts without any memory or room for a while.
#include <weft/sim.h>

#include <malloc.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <weft/await.h>
#include <weft/protobuf_group.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/raw_echo.h"

namespace simulation_life_test {

using namespace weft;
using namespace weft::test;
using weft::sim::Simulation;

std::shared_ptr<void> nothing(Runtime&) { return nullptr; }

std::shared_ptr<void> serves_echo(Runtime& runtime) {
    auto service = std::make_shared<Echo>();
    CHECK(runtime.serve(*service, "sim://server").ok());
    return service;
}

Task<Status> meets(Group group) {
    const Status met = co_await barrier(group, "met");
    co_return met;
}

Task<Status> asks_for(Channel channel, Duration timeout) {
    co_return (co_await call(channel, echo_method, {}, {.timeout = timeout})).status();
}

TEST_CASE("simulation: calls end in time and with few events while all resources are refused") {
    const std::pair<const char*, void (*)(Simulation&)> faults[] = {
        {"room in transports", [](Simulation& in) { in.refuse(1); }},
        {"anything at the client", [](Simulation& in) { in.limit_memory("client", 1); }},
        {"anything at the server", [](Simulation& in) { in.limit_memory("server", 1); }},
    };
    for (const auto& [name, begin] : faults) {
        INFO(name);
        Simulation simulation(7);
        simulation.add("server", serves_echo);
        simulation.add("client", nothing);
        Runtime& client = *simulation.runtime("client");
        const Channel channel = client.connect("sim://server").value();
        REQUIRE(client.block_on(asks_for(channel, 1s)).ok());
        begin(simulation);
        const std::uint64_t before = simulation.events();
        const TimePoint start = simulation.now();
        CHECK_FALSE(client.block_on(asks_for(channel, 2s)).ok());
        CHECK(simulation.now() - start <= 3s);
        CHECK(simulation.events() - before < 100'000);
        simulation.heal();
        CHECK(client.block_on(asks_for(channel, 5s)).ok());
    }
}

TEST_CASE("simulation: a host's runtime is the same through its lives") {
    Simulation simulation(1);
    simulation.add("server", serves_echo);
    std::vector<Runtime*> given;
    simulation.add("client", [&given](Runtime& runtime) {
        given.push_back(&runtime);
        return std::shared_ptr<void>();
    });
    Runtime& client = *simulation.runtime("client");
    for (void (Simulation::*stop)(const std::string&) :
         {&Simulation::crash, &Simulation::kill, &Simulation::end}) {
        (simulation.*stop)("client");
        simulation.run_for(1s);
        REQUIRE_FALSE(simulation.is_up("client"));
        simulation.start("client");
        CHECK(client.block_on(asks_for(client.connect("sim://server").value(), 1s)).ok());
    }
    CHECK(given == std::vector(4, &client));
}

using Use = void (*)(Runtime&);
using NamedUse = std::pair<const char*, Use>;

// Each use ends the program when `place` makes it on a host's runtime.
void check_uses(std::span<const NamedUse> uses, void (*place)(Simulation&, Runtime&, Use),
                const std::vector<std::string>& words) {
    for (const auto& [name, use] : uses) {
        check({name,
               [use = use, place] {
                   Simulation simulation(1);
                   simulation.add("client", nothing);
                   place(simulation, *simulation.runtime("client"), use);
               },
               words});
    }
}

TEST_CASE("simulation: use of the runtime of a host that is down ends with a message") {
    const NamedUse uses[] = {
        {"connect", [](Runtime& of) { (void)of.connect("sim://server"); }},
        {"block_on", [](Runtime& of) { (void)of.block_on(asks_for(Channel(), 1s)); }},
        {"turn_until", [](Runtime& of) { (void)of.turn_until([] { return false; }, 1s); }},
        {"addresses", [](Runtime& of) { (void)of.addresses(); }},
        {"spawn", [](Runtime& of) { of.spawn([]() -> Task<void> { co_return; }()); }},
        {"executor", [](Runtime& of) { of.executor().post([] {}); }},
        {"turn", [](Runtime& of) { of.turn(); }},
    };
    check_uses(uses,
               [](Simulation& simulation, Runtime& client, Use use) {
                   simulation.crash("client");
                   use(client);
               },
               {"of a simulated host that is down"});
}

TEST_CASE("simulation: use of a host's runtime on another thread ends with a message") {
    const NamedUse uses[] = {
        {"connect", [](Runtime& of) { (void)of.connect("sim://server"); }},
        {"listen", [](Runtime& of) { (void)of.listen("sim://client"); }},
        {"expose", [](Runtime& of) { (void)of.expose(of.allocate(1).value(), {}); }},
        {"block_on", [](Runtime& of) { (void)of.block_on(asks_for(Channel(), 1s)); }},
        {"turn_until", [](Runtime& of) { (void)of.turn_until([] { return false; }, 1s); }},
    };
    check_uses(
        uses,
        [](Simulation&, Runtime& client, Use use) { std::thread([&] { use(client); }).join(); },
        {"operation of a host's runtime", "called on another thread"});
}

// A program that owns its runtime.
struct Server {
    explicit Server(Runtime of) : runtime(std::move(of)) {}
    Echo service;
    Runtime runtime;
};

TEST_CASE("simulation: a program may move its runtime into what it returns") {
    Simulation simulation(1);
    simulation.add("server", [](Runtime& runtime) {
        auto server = std::make_shared<Server>(std::move(runtime));
        CHECK(server->runtime.serve(server->service, "sim://server").ok());
        return server;
    });
    simulation.add("client", nothing);
    Runtime& client = *simulation.runtime("client");
    const Channel channel = client.connect("sim://server").value();
    for (int starts = 0; starts < 3; ++starts) {
        CHECK(client.block_on(asks_for(channel, 5s)).ok());
        simulation.kill("server");
        simulation.start("server");
        simulation.run_for(1s);
    }
    simulation.end("server");
    simulation.run_for(10s);
    CHECK_FALSE(simulation.is_up("server"));
}

TEST_CASE("simulation: an await across virtual time and another clock is refused at once") {
    Simulation simulation(1), other(2);
    Runtime real = Runtime::create({.log_level = LogLevel::off}).value();
    for (Simulation* const one : {&simulation, &other}) {
        one->add("server", serves_echo);
        one->add("client", nothing);
    }
    Runtime& client = *simulation.runtime("client");
    const Channel there = client.connect("sim://server").value();
    const Channel outside = real.connect("tcp://127.0.0.1:9").value();
    for (const Status& status :
         {real.block_on(asks_for(there, 10s)), client.block_on(asks_for(outside, 10s)),
          other.runtime("client")->block_on(asks_for(there, 10s))}) {
        CAPTURE(status.to_string());
        CHECK(status.code() == Code::failed_precondition);
        CHECK(status.text().find("has another clock") != std::string_view::npos);
    }
    CHECK(client.block_on(asks_for(there, 10s)).ok());
    const GroupView view = GroupView::make("time", 1, {{0, {"sim://server"}}}).value();
    const Group group = client.group(view).value();
    const Status met = real.block_on(meets(group));
    CHECK(met.code() == Code::failed_precondition);
    CHECK(met.text().find("has another clock") != std::string_view::npos);
}

TEST_CASE("simulation: a runtime that outlives its simulation lets no time pass") {
    std::optional<Runtime> kept;
    {
        Simulation simulation(1);
        simulation.add("server", [&](Runtime& runtime) {
            kept.emplace(std::move(runtime));
            return nullptr;
        });
    }
    // The runtime of a crashed host lets time pass as long as its simulation exists.
    {
        Simulation simulation(1);
        std::optional<Runtime> crashed;
        simulation.add("server", [&](Runtime& runtime) {
            crashed.emplace(std::move(runtime));
            return nullptr;
        });
        simulation.crash("server");
        bool is_over = false;
        simulation.in(1ms, [&] { is_over = true; });
        CHECK(crashed->turn_until([&] { return is_over; }, 1s));
    }
    int looked = 0;
    CHECK_FALSE(kept->turn_until([&] { return ++looked > 5; }, 1s));
    CHECK(looked == 1);
}

TEST_CASE("simulation: a host that is paused while it ends does not grow in memory") {
    Simulation simulation(1);
    simulation.add("server", nothing);
    simulation.end("server");
    simulation.pause("server");
    simulation.run_for(1s);
    const std::size_t before = ::mallinfo2().uordblks;
    simulation.run_for(10s);
    CHECK(::mallinfo2().uordblks < before + 100'000);
    CHECK(simulation.is_up("server"));
    simulation.resume("server");
    simulation.run_for(1s);
    CHECK_FALSE(simulation.is_up("server"));
}

TEST_CASE("simulation: destroying the moved runtime of a host that is up ends with a message") {
    check({"gone",
           [] {
               Simulation simulation(1);
               simulation.add("server", [](Runtime& runtime) {
                   const Runtime gone = std::move(runtime);
                   return std::shared_ptr<void>();
               });
               simulation.run_for(1s);
           },
           {"Runtime::~Runtime()", "of host 'server', which is up"}});
}

TEST_CASE("simulation: a host that is started while it ends starts when it has ended") {
    Simulation simulation(1);
    simulation.add("server", serves_echo);
    simulation.end("server");
    simulation.start("server");
    simulation.run_for(10s);
    CHECK(simulation.is_up("server"));
    CHECK(simulation.starts("server") == 2);
    // A start() before an end() does not count.
    simulation.start("server");
    simulation.end("server");
    simulation.run_for(10s);
    CHECK_FALSE(simulation.is_up("server"));
    // Nor does a start() before a crash.
    simulation.start("server");
    simulation.end("server");
    simulation.start("server");
    simulation.crash("server");
    simulation.run_for(10s);
    CHECK_FALSE(simulation.is_up("server"));
}

TEST_CASE("simulation: start() throws and the host stays down when no descriptor is left") {
    CHECK(end_of_child([] {
              Simulation simulation(1);
              simulation.add("client", nothing);
              simulation.crash("client");
              rlimit none{};
              if (::getrlimit(RLIMIT_NOFILE, &none) != 0) return 1;
              none.rlim_cur = 0;
              if (::setrlimit(RLIMIT_NOFILE, &none) != 0) return 2;
              try {
                  simulation.start("client");
              } catch (const BadResult&) {
                  return simulation.is_up("client") ? 3 : 0;
              }
              return 4;
          }) == 0);
}

}  // namespace simulation_life_test
