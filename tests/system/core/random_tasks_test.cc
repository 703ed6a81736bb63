// Random programs of coroutines; their runtimes end while they run.
#include <weft/sim.h>

#include <optional>
#include <thread>

#include "support/fresh_uri.h"
#include "support/random_tasks.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::test;
using namespace weft::test::random_tasks;

namespace {
namespace random_tasks_runs {

constexpr std::size_t hosts = 3;

std::string name(std::size_t host) { return "host" + std::to_string(host); }

// Connects the server `host` to all servers at `uris`, and joins their group.
void open_ways(Place& at, Runtime& runtime, const std::vector<std::string>& uris,
               std::size_t host) {
    for (const std::string& to : uris) at.ways.channels.push_back(runtime.connect(to).value());
    const GroupView view =
        GroupView::make("all", 1, {{0, {uris[0]}}, {1, {uris[1]}}, {2, {uris[2]}}}).value();
    REQUIRE(runtime.join(view, static_cast<std::uint32_t>(host)).ok());
    at.ways.group = runtime.group(view).value();
    at.run.set_ways(host, at.ways);
}

void check_run(Run& run) {
    for (std::size_t host = 0; host < hosts; ++host) run.set_ways(host, {});
    run.passed.clear();
    CHECK(run.alive == 0);
    CHECK(run.destroyed_twice == 0);
    CHECK(run.steps > 0);
}

// ---- on virtual time ----------------------------------------------------------------------------

struct Simulated {
    Simulated(Run& all, std::uint64_t seed) : run(all), chance{seed}, sim(seed) {
        RuntimeOptions options;
        options.log_level = LogLevel::off;
        options.drain_timeout = 200ms;
        for (std::size_t host = 0; host < hosts; ++host) {
            sim.add(
                name(host), [this, host](Runtime& runtime) { return start(host, runtime); },
                options);
        }
    }

    std::shared_ptr<void> start(std::size_t host, Runtime& runtime) {
        auto server = std::make_shared<TaskServer>();
        server->chance = chance.fork();
        server->at = std::make_shared<Place>(Place{run});
        Place& at = *server->at;
        at.spawn = [this, host](Task<void> task) {
            if (Runtime* const up = sim.runtime(name(host))) up->spawn(std::move(task));
        };
        at.fault = [this](Chance& by) { strike(name(by.below(hosts)), by.below(3)); };
        REQUIRE(runtime.serve(*server, "sim://" + name(host)).ok());
        open_ways(at, runtime, {"sim://host0", "sim://host1", "sim://host2"}, host);
        for (int i = 0; i < 6; ++i) runtime.spawn(root(server->at, chance.fork()));
        return server;
    }

    void strike(const std::string& host, std::uint64_t how) {
        switch (how) {
            case 0: return sim.crash(host);
            case 1: return sim.kill(host);
            case 2: return sim.end(host);
            case 3: return sim.pause(host);
            case 4: return sim.resume(host);
            default: return sim.start(host);
        }
    }

    Run& run;
    Chance chance;
    sim::Simulation sim;
};

TEST_CASE("random tasks: simulated hosts end while coroutines run", "[seeded]") {
    for (std::uint64_t i = 0; i < setting("TEST_RUNS", 20); ++i) {
        INFO("TEST_SEED=" << seed_of(i));
        Run run;
        {
            Simulated simulated(run, seed_of(i));
            Chance& chance = simulated.chance;
            for (int round = 0; round < 25; ++round) {
                simulated.sim.run_for(chance.up_to(20ms));
                simulated.strike(name(chance.below(hosts)), chance.below(8));
            }
        }
        check_run(run);
    }
}

// ---- in real time -------------------------------------------------------------------------------

// A runtime turned by its own thread or, when manual, by `thread`.
struct Turned {
    Turned(Run& run, Chance& chance, bool manual) : is_manual(manual) {
        RuntimeOptions options;
        options.log_level = LogLevel::off;
        options.drain_timeout = 50ms;
        options.manual = is_manual;
        runtime.emplace(Runtime::create(options).value());
        server.chance = chance.fork();
        server.at = std::make_shared<Place>(Place{run});
        server.at->spawn = [this](Task<void> task) {
            if (!is_over) runtime->spawn(std::move(task));
        };
    }
    ~Turned() { end(); }

    void turn() {
        thread = std::thread([this] {
            while (!is_over) runtime->turn();
        });
    }
    void end() {
        is_over = true;
        if (thread.joinable()) thread.join();
        runtime.reset();
    }

    const bool is_manual;
    TaskServer server;
    std::optional<Runtime> runtime;
    std::thread thread;
    std::atomic<bool> is_over{false};
};

// Calls through channels of running and ended runtimes, on a thread without a runtime.
struct Caller {
    Caller(Run& of, Chance its) : run(of), chance(its), thread([this] { call(); }) {}
    ~Caller() {
        is_over = true;
        thread.join();
    }
    void call() {
        while (!is_over) {
            const Channel channel = run.any_channel(chance);
            if (!channel) continue;
            const auto local = std::make_shared<Run::Local>(run);
            echo::v1::EchoClient(channel).Now(request_of("x"), {.timeout = chance.up_to(5ms)},
                                              [local](const Status&, const EchoServer::Reply&) {});
            std::this_thread::sleep_for(chance.up_to(200us));
        }
    }

    Run& run;
    Chance chance;
    std::atomic<bool> is_over{false};
    std::thread thread;
};

TEST_CASE("random tasks: runtimes with threads end while coroutines run", "[seeded]") {
    for (std::uint64_t i = 0; i < setting("TEST_RUNS", 10); ++i) {
        INFO("TEST_SEED=" << seed_of(i));
        Chance chance{seed_of(i)};
        Run run;
        {
            std::vector<std::unique_ptr<Turned>> all;
            std::vector<std::string> uris;
            for (std::size_t host = 0; host < hosts; ++host) {
                const bool is_manual = chance.below(4) == 0;
                all.push_back(std::make_unique<Turned>(run, chance, is_manual));
                uris.push_back(fresh_uri("sm"));
            }
            for (std::size_t host = 0; host < hosts; ++host) {
                Turned& here = *all[host];
                REQUIRE(here.runtime->serve(here.server, uris[host]).ok());
                open_ways(*here.server.at, *here.runtime, uris, host);
            }
            for (const auto& one : all) {
                if (one->is_manual) one->turn();
            }
            const Caller caller(run, chance.fork());
            for (int begun = 0; begun < 12; ++begun) {
                Turned& here = *all[chance.below(hosts)];
                here.runtime->spawn(root(here.server.at, chance.fork()));
                if (chance.below(3) == 0) std::this_thread::sleep_for(chance.up_to(3ms));
            }
            for (std::size_t left = hosts; left > 0; --left) {
                const std::size_t host = chance.below(left);
                std::swap(all[host], all[left - 1]);
                if (chance.below(3) == 0) run.set_ways(host, {});
                all[left - 1]->end();
            }
        }
        check_run(run);
    }
}

}  // namespace random_tasks_runs
}  // namespace
