// Spread channels in simulations: their server starts again.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <set>
#include <string>
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

constexpr MethodId place_method("test.Spread/Place");
constexpr MethodId slow_method("test.Spread/Slow");
constexpr Duration slow_time = 1s;
constexpr const char* spread_server = "sim://server";

// Replies with the number of its context.
struct PlaceService final : Service {
    explicit PlaceService(unsigned k) : number(std::to_string(k)) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(place_method, [this](Call call) { call.reply(as_bytes(number)); });
        registrar.add(slow_method, [](Call call) {
            detail::run_detached(reply_late(std::make_shared<Call>(std::move(call))), [] {});
        });
    }
    static Task<void> reply_late(std::shared_ptr<Call> call) {
        (void)co_await sleep_for(slow_time);
        call->reply({});
    }
    const std::string number;
};

std::shared_ptr<void> serve_places(Runtime& runtime) {
    const auto make = [](const Here& here) { return std::make_unique<PlaceService>(here.index); };
    REQUIRE(runtime.serve(make, spread_server).ok());
    return nullptr;
}

std::shared_ptr<void> be_client(Runtime&) { return nullptr; }

// The contexts that answered.
Task<std::set<unsigned>> ask_places(Channel channel, int calls) {
    std::set<unsigned> answered;
    for (int i = 0; i < calls; ++i) {
        const auto reply =
            co_await call(channel, place_method, {}, {.timeout = 30s, .idempotent = true});
        INFO(reply.status().to_string());
        REQUIRE(reply);
        answered.insert(static_cast<unsigned>(std::stoul(std::string(as_text(*reply)))));
    }
    co_return answered;
}

// An idle client with a spread channel; all connections are up.
struct SpreadScene {
    Simulation simulation;
    Channel channel;
    std::vector<Channel> pinned{};
    unsigned second = 0;  // The context of the second connection.
    int slow_calls = 0, ended = 0, good = 0;

    SpreadScene(std::uint64_t seed, unsigned contexts, unsigned spread) : simulation(seed) {
        simulation.add("server", serve_places, with_contexts(contexts));
        simulation.add("client", be_client, with_contexts(1));
        channel = client().connect(spread_server, {.spread = spread}).value();
        const std::set<unsigned> first = ask(1);
        second = (*first.begin() + 1) % contexts;
        REQUIRE(ask(200).size() == std::min(spread, contexts));
    }

    Runtime& client() { return *simulation.runtime("client"); }
    std::set<unsigned> ask(int calls) { return client().block_on(ask_places(channel, calls)); }

    // Other clients are back first, in each context but `second`: the first connection of the
    // channel, which names none, is placed there.
    void restart(unsigned contexts) {
        simulation.kill("server");
        simulation.run_for(10ms);
        simulation.set_options("server", with_contexts(contexts));
        simulation.start("server");
        for (unsigned i = 0; i < 2 * contexts; ++i) {
            if (i / 2 == second) continue;
            const std::string name = "pinned" + std::to_string(i);
            simulation.add(name, be_client, with_contexts(1));
            Runtime& runtime = *simulation.runtime(name);
            pinned.push_back(runtime.connect(spread_server).value().on(i / 2));
            REQUIRE(runtime.block_on(ask_places(pinned.back(), 1)) == std::set{i / 2});
        }
    }

    void start_slow_calls(int calls) {
        slow_calls = calls;
        simulation.act_as("client", [&] {
            for (int i = 0; i < calls; ++i) {
                channel.call(slow_method, {}, {.timeout = 30s, .idempotent = true},
                             [this](const Status& status, ByteView) {
                                 ++ended;
                                 good += status.ok();
                             });
            }
        });
    }
    bool wait_for_slow_calls() {
        return simulation.run_until([&] { return ended == slow_calls; }, 60s);
    }

    // The contexts with which the client is connected; one for each connection.
    std::multiset<unsigned> connected() {
        std::multiset<unsigned> contexts;
        for (const auto& slot : impl_of(client()).nodes[0]->context.endpoints()) {
            for (const core::Peer* peer : slot->peers) {
                if (peer && peer->state == core::PeerState::up)
                    contexts.insert(peer->remote.context);
            }
        }
        return contexts;
    }
    // With each of these contexts one connection.
    bool has_one_each(const std::set<unsigned>& contexts) {
        return std::ranges::equal(connected(), contexts);
    }
};

// Adds a server of two contexts, to one of which as many connections name as may.
std::vector<Channel> fill_context(Simulation& simulation, unsigned context) {
    RuntimeOptions few = with_contexts(2);
    few.peers_max = 8;
    simulation.add("server", serve_places, few);
    std::vector<Channel> named;
    for (int i = 0; i < 4; ++i) {
        const std::string name = "named" + std::to_string(i);
        simulation.add(name, be_client, with_contexts(1));
        Runtime& runtime = *simulation.runtime(name);
        named.push_back(runtime.connect(spread_server).value().on(context));
        REQUIRE(runtime.block_on(ask_places(named.back(), 1)) == std::set{context});
    }
    return named;
}

// Of calls that may run again.
struct EndsOfCalls {
    int ended = 0;
    std::multiset<Code> failed{};

    // A failure counts only if it `has_to_work`.
    void start(Simulation& simulation, const Channel& channel, bool has_to_work = true) {
        simulation.act_as("client", [&] {
            channel.call(place_method, {}, {.timeout = 30s, .idempotent = true},
                         [this, has_to_work](const Status& status, ByteView) {
                             ++ended;
                             if (has_to_work && !status.ok()) failed.insert(status.code());
                         });
        });
    }
};

}  // namespace

TEST_CASE("simulation: a spread channel has a context for each connection after a restart") {
    struct Case {
        unsigned before, after, spread;
    };
    for (const Case& one :
         {Case{2, 2, 2}, Case{2, 4, 4}, Case{4, 2, 4}, Case{4, 4, 2}, Case{3, 5, 3}}) {
        for (std::uint64_t seed = 1; seed <= 8; ++seed) {
            CAPTURE(one.before, one.after, one.spread, seed);
            SpreadScene scene(seed, one.before, one.spread);
            scene.restart(one.after);
            (void)scene.ask(50);  // The new connections.
            const std::set<unsigned> answered = scene.ask(200);
            CHECK(answered.size() == std::min(one.after, one.spread));
            scene.simulation.run_for(100ms);  // Replaced connections are closed.
            CHECK(scene.has_one_each(answered));
        }
    }
}

TEST_CASE(
    "simulation: a spread channel tries a refused connection once a second, beside its calls") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        Simulation simulation(seed);
        const std::vector<Channel> named = fill_context(simulation, 1);
        simulation.add("client", be_client, with_contexts(1));
        Runtime& client = *simulation.runtime("client");
        const Channel channel = client.connect(spread_server, {.spread = 2}).value();
        const TimePoint until = simulation.now() + 3500ms;
        while (simulation.now() < until) {
            REQUIRE(client.block_on(ask_places(channel, 5)) == std::set{0u});
            simulation.run_for(10ms);
        }
        const std::string events =
            impl_of(client).nodes[0]->context.recorder().last(1000, simulation.now());
        CAPTURE(events);
        std::size_t refused = 0;
        for (std::size_t at = 0; (at = events.find("lost", at)) != std::string::npos; ++at)
            ++refused;
        CHECK(refused == 4);
    }
}

// As on a channel without spread, where calls reconnect.
TEST_CASE("simulation: no call of a spread channel fails while its server starts again") {
    for (const unsigned spread : {2u, 4u}) {
        for (const int in_flight : {0, 1, 3}) {
            for (std::uint64_t seed = 1; seed <= 12; ++seed) {
                // The context of another connection does not come back with the others. Calls that
                // began before a connection was up may be with one that comes there.
                const bool stalls = in_flight != 0 && seed > 4;
                CAPTURE(spread, in_flight, seed, stalls);
                SpreadScene scene(seed, 4, spread);
                scene.start_slow_calls(in_flight);
                scene.simulation.run_for(20ms);
                scene.simulation.kill("server");
                EndsOfCalls quick;
                for (int i = 0; i < 60; ++i) {
                    if (i == 30) scene.simulation.start("server");
                    if (i == 30 && stalls) scene.simulation.stall("server", scene.second, 5s);
                    quick.start(scene.simulation, scene.channel, !stalls || i >= 40);
                    scene.simulation.run_for(10ms);
                }
                REQUIRE(scene.simulation.run_until([&] { return quick.ended == 60; }, 60s));
                CHECK(quick.failed == std::multiset<Code>{});
            }
        }
    }
}

// It named no context.
TEST_CASE("simulation: no call of a spread channel fails as another context has no room") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        Simulation simulation(seed);
        const std::vector<Channel> named = fill_context(simulation, 1);
        simulation.add("client", be_client, with_contexts(1));
        Runtime& client = *simulation.runtime("client");
        const Channel channel = client.connect(spread_server, {.spread = 2}).value();
        REQUIRE(client.block_on(ask_places(channel, 50)) == std::set{0u});
        simulation.stall("server", 0, 3s);
        EndsOfCalls quick;
        for (int i = 0; i < 400; ++i) {
            quick.start(simulation, channel);
            simulation.run_for(10ms);
        }
        REQUIRE(simulation.run_until([&] { return quick.ended == 400; }, 60s));
        CHECK(quick.failed.count(Code::resource_exhausted) == 0);
        CHECK(quick.failed.size() < 300);
    }
}

TEST_CASE("simulation: calls in flight on a connection that a spread channel replaces end well") {
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
        CAPTURE(seed);
        SpreadScene scene(seed, 2, 2);
        const unsigned other = 1 - scene.second;
        scene.start_slow_calls(8);  // Of both connections, which come back for them.
        scene.simulation.run_for(50ms);
        scene.restart(2);
        scene.simulation.run_for(200ms);
        // Both with the context that was free.
        REQUIRE(scene.connected() == std::multiset{scene.second, scene.second});
        (void)scene.ask(50);                      // The new connection.
        CHECK(scene.ask(50) == std::set{other});  // It has no calls in flight.
        CHECK(scene.connected().size() == 3);
        CHECK(scene.connected().count(other) == 1);
        REQUIRE(scene.ended == 0);
        REQUIRE(scene.wait_for_slow_calls());
        CHECK(scene.good == 8);
        (void)scene.ask(1);  // The replaced one is closed by the next operation.
        scene.simulation.run_for(100ms);
        CHECK(scene.has_one_each({0, 1}));
    }
}

TEST_CASE("simulation: a spread channel that ends closes the connections that it has replaced") {
    SpreadScene scene(5, 2, 2);
    scene.start_slow_calls(8);
    scene.simulation.run_for(50ms);
    scene.restart(2);
    scene.simulation.run_for(200ms);
    (void)scene.ask(50);  // The new connection.
    CHECK(scene.ask(50) == std::set{1 - scene.second});
    REQUIRE(scene.connected().size() == 3);
    scene.channel = Channel();
    REQUIRE(scene.wait_for_slow_calls());
    CHECK(scene.good == 0);
    scene.simulation.run_for(2 * slow_time);  // The handlers end, too.
    CHECK(scene.connected().empty());
}
