// Simulated hosts with many contexts.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include <weft/await.h>
#include <weft/sim.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/contexts.h"

using namespace weft;
using namespace weft::sim;
using weft::test::with_contexts;

namespace {

constexpr MethodId work("test.Contexts/Work");
constexpr Duration work_time = 20us;

std::shared_ptr<void> run_nothing(Runtime&) { return nullptr; }

// Each call takes the time of its context's thread.
struct Worker final : Service {
    Worker(Simulation& in, unsigned k) : simulation(in), index(k) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(work, [this](Call call) {
            busy_until = std::max(busy_until, simulation.now()) + work_time;
            simulation.stall("server", index, busy_until - simulation.now());
            call.reply({});
        });
    }
    Simulation& simulation;
    const unsigned index;
    TimePoint busy_until{};
};

// Four calls in flight, always.
struct Client {
    Channel channel;
    std::uint64_t answered = 0;
    void next() {
        channel.call(work, {}, {.timeout = 10s}, [this](const Status& status, ByteView) {
            if (!status.ok()) return;
            ++answered;
            next();
        });
    }
};

// Calls in `time`, of four clients for each context.
std::uint64_t calls_with(unsigned contexts, Duration time) {
    Simulation simulation(3);
    const auto serve = [&](Runtime& runtime) -> std::shared_ptr<void> {
        const auto make = [&](const Here& here) {
            return std::make_unique<Worker>(simulation, here.index);
        };
        REQUIRE(runtime.serve(make, "sim://server").ok());
        return nullptr;
    };
    simulation.add("server", serve, with_contexts(contexts));
    std::vector<std::unique_ptr<Client>> clients;
    for (unsigned i = 0; i < 4 * contexts; ++i) {
        const std::string name = "client" + std::to_string(i);
        simulation.add(name, run_nothing, with_contexts(1));
        clients.push_back(std::make_unique<Client>());
        Client& client = *clients.back();
        client.channel = simulation.runtime(name)->connect("sim://server").value();
        simulation.act_as(name, [&] {
            for (int k = 0; k < 4; ++k) client.next();
        });
    }
    const auto count = [&] {
        std::uint64_t all = 0;
        for (const auto& client : clients) all += client->answered;
        return all;
    };
    simulation.run_for(20ms);
    const std::uint64_t before = count();
    simulation.run_for(time);
    const std::uint64_t calls = count() - before;
    for (unsigned i = 0; i < 4 * contexts; ++i) simulation.crash("client" + std::to_string(i));
    simulation.crash("server");
    return calls;
}

}  // namespace

TEST_CASE("simulation: the calls of a server grow with its contexts, up to 64") {
    const double one = static_cast<double>(calls_with(1, 20ms));
    CHECK(one >= 0.95 * (20ms / work_time));
    for (const unsigned contexts : {2u, 4u, 8u, 16u, 32u, 64u}) {
        CAPTURE(contexts, one);
        CHECK(static_cast<double>(calls_with(contexts, 20ms)) >= 0.95 * contexts * one);
    }
}

namespace {

constexpr unsigned circle = 64;
constexpr MethodId around("test.Contexts/Around");

// Its handler waits until all are taken; then it submits from context to context, around.
struct Submitter final : Service {
    Submitter(Runtime& of, unsigned k) : runtime(of), index(k) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(around, [this](Call call) {
            detail::run_detached(go(std::make_shared<Call>(std::move(call))), [] {});
        });
    }
    Task<void> go(std::shared_ptr<Call> call) {
        ++begun;
        while (begun < circle) (void)co_await sleep_for(10us);
        const unsigned steps = co_await submit_on(index, circle);
        const bool is_home = runtime.here() == index;
        call->reply(is_home && steps == circle ? as_bytes("around") : as_bytes("lost"));
    }
    Task<unsigned> submit_on(unsigned from, unsigned left) {
        if (left == 0) co_return 0;
        const unsigned next = (from + 1) % circle;
        const auto there = [this, next, left] { return submit_on(next, left - 1); };
        const unsigned steps = co_await runtime.context(next).submit(there);
        co_return steps + 1;
    }
    Runtime& runtime;
    const unsigned index;
    static inline unsigned begun = 0;
};

}  // namespace

TEST_CASE("simulation: 64 contexts submit in a circle while all their handlers are taken") {
    Submitter::begun = 0;
    Simulation simulation(5);
    RuntimeOptions options = with_contexts(circle);
    options.handlers_max = circle;
    const auto serve = [&](Runtime& runtime) -> std::shared_ptr<void> {
        const auto make = [&runtime](const Here& here) {
            return std::make_unique<Submitter>(runtime, here.index);
        };
        REQUIRE(runtime.serve(make, "sim://server").ok());
        return nullptr;
    };
    simulation.add("server", serve, options);
    simulation.add("client", run_nothing, with_contexts(1));
    Channel channel = simulation.runtime("client")->connect("sim://server").value();
    unsigned answered = 0;
    std::vector<std::string> replies;
    simulation.act_as("client", [&] {
        for (unsigned k = 0; k < circle; ++k) {
            channel.on(k).call(around, {}, {.timeout = 60s},
                               [&](const Status& status, ByteView reply) {
                                   ++answered;
                                   replies.push_back(status.ok() ? std::string(as_text(reply))
                                                                 : status.to_string());
                               });
        }
    });
    CHECK(simulation.run_until([&] { return answered == circle; }, 30s));
    for (const std::string& reply : replies) CHECK(reply == "around");
    channel = Channel();
}

namespace {

constexpr MethodId slow("test.Contexts/Slow");

struct Slow final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(slow, [](Call call) {
            detail::run_detached(reply_later(std::make_shared<Call>(std::move(call))), [] {});
        });
    }
    static Task<void> reply_later(std::shared_ptr<Call> call) {
        (void)co_await sleep_for(10ms);
        call->reply({});
    }
};

}  // namespace

TEST_CASE("simulation: a context that is idle after a burst leaves its share of the limits") {
    for (const bool stays : {true, false}) {
        CAPTURE(stays);
        Simulation simulation(13);
        RuntimeOptions options = with_contexts(2);
        options.handlers_max = 256;
        Slow service;
        const auto serve = [&](Runtime& runtime) -> std::shared_ptr<void> {
            REQUIRE(runtime.serve(shared(service), "sim://server").ok());
            return nullptr;
        };
        simulation.add("server", serve, options);
        simulation.add("client", run_nothing, with_contexts(1));
        const auto burst = [&](const Channel& channel) {
            int answered = 0, ok = 0;
            simulation.act_as("client", [&] {
                for (int i = 0; i < 200; ++i) {
                    channel.call(slow, {}, {.timeout = 5s}, [&](const Status& status, ByteView) {
                        ++answered;
                        ok += status.ok();
                    });
                }
            });
            CHECK(simulation.run_until([&] { return answered == 200; }, 20s));
            return ok;
        };
        Channel channel = simulation.runtime("client")->connect("sim://server").value();
        CHECK(burst(channel.on(1)) == 200);
        if (!stays) channel = simulation.runtime("client")->connect("sim://server").value();
        simulation.run_for(15s);
        CHECK(burst(channel.on(0)) == 200);
        channel = Channel();
        simulation.crash("client");
        simulation.crash("server");
    }
}
