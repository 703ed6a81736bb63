// Simulated hosts with several contexts.
#include <algorithm>
#include <map>
#include <set>

#include <weft/await.h>
#include <weft/sim.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::sim;

namespace {

constexpr MethodId number("test.Contexts/Number");

struct Numbered final : Service {
    Numbered(Runtime& of, unsigned k) : runtime(of), index(k) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(number, [this](Call call) {
            const bool is_right = runtime.here() == index;
            const std::string text = std::to_string(is_right ? index : 99);
            call.reply(as_bytes(text));
        });
    }
    Runtime& runtime;
    const unsigned index;
};

RuntimeOptions with(unsigned contexts) {
    RuntimeOptions options;
    options.contexts = contexts;
    options.log_level = LogLevel::off;
    return options;
}

Simulation::Program server(const std::string& uri) {
    return [uri](Runtime& runtime) -> std::shared_ptr<void> {
        const auto make = [&runtime](const Here& here) {
            return std::make_unique<Numbered>(runtime, here.index);
        };
        REQUIRE(runtime.serve(make, uri).ok());
        return nullptr;
    };
}

std::shared_ptr<void> nothing(Runtime&) { return nullptr; }

Task<Result<std::vector<std::byte>>> ask(Channel channel, CallOptions options = {}) {
    co_return co_await call(channel, number, {}, options);
}

}  // namespace

TEST_CASE(
    "simulation: the contexts of a host serve behind one name, and a host restarts with more") {
    Simulation simulation(7);
    simulation.add("server", server("sim://server"), with(3));
    std::set<std::string> answered;
    std::vector<Channel> channels;
    for (int i = 0; i < 6; ++i) {
        const std::string name = "client" + std::to_string(i);
        simulation.add(name, nothing, with(1 + i % 2));
        Runtime& client = *simulation.runtime(name);
        channels.push_back(client.connect("sim://server").value());
        const auto reply = client.block_on(ask(channels.back()));
        REQUIRE(reply);
        answered.insert(std::string(as_text(*reply)));
    }
    CHECK(answered == std::set<std::string>{"0", "1", "2"});
    simulation.crash("server");
    simulation.start("server");
    for (int i = 0; i < 6; ++i) {
        Runtime& client = *simulation.runtime("client" + std::to_string(i));
        // What was sent to the former life may have run there.
        const auto reply =
            client.block_on(ask(channels[static_cast<std::size_t>(i)], {.idempotent = true}));
        INFO(reply.status().to_string());
        CHECK(reply.ok());
    }
    channels.clear();
}

TEST_CASE("simulation: the same seed gives the same run of hosts with several contexts") {
    const auto run = [](std::uint64_t seed) {
        Simulation simulation(seed);
        simulation.add("server", server("sim://server"), with(5));
        simulation.add("client", nothing, with(2));
        Runtime& client = *simulation.runtime("client");
        Channel channel = client.connect("sim://server").value();
        const auto many = [&](unsigned) -> Task<int> {
            int good = 0;
            for (int i = 0; i < 50; ++i) good += (co_await ask(channel)).ok();
            co_return good;
        };
        const std::vector<int> good = client.block_on(client.on_all(many));
        CHECK(good == std::vector{50, 50});
        return simulation.trace_hash();
    };
    CHECK(run(3) == run(3));
    CHECK(run(3) != run(4));
}

TEST_CASE("simulation: a session that is resumed is found on its context") {
    Simulation simulation(11);
    simulation.add("server", server("sim://server"), with(5));
    simulation.add("client", nothing, with(1));
    Runtime& client = *simulation.runtime("client");
    Channel channel = client.connect("sim://server").value();
    const auto first = client.block_on(ask(channel));
    REQUIRE(first);
    for (int i = 0; i < 5; ++i) {
        // A call is in doubt while the connection is lost.
        std::optional<Status> ended;
        std::string text;
        simulation.act_as("client", [&] {
            channel.call(number, {}, {.timeout = 10s}, [&](const Status& status, ByteView reply) {
                ended = status;
                text = as_text(reply);
            });
        });
        simulation.set_links({.hang_up = 1});
        simulation.run_for(5ms);
        simulation.set_links({});
        REQUIRE(simulation.run_until([&] { return ended.has_value(); }, 10s));
        CHECK(ended->ok());
        CHECK(text == as_text(*first));
    }
    const api::RuntimeImpl& impl = impl_of(*simulation.runtime("server"));
    std::uint64_t unknown = 0;
    for (const auto& node : impl.nodes) unknown += node->server.lost_sessions();
    CHECK(unknown == 0);
    channel = Channel();
}

TEST_CASE("simulation: a stalled context delays its own clients only") {
    Simulation simulation(5);
    simulation.add("server", server("sim://server"), with(4));
    std::map<std::string, unsigned> context_of;
    std::map<std::string, Channel> channels;
    for (int i = 0; i < 8; ++i) {
        const std::string name = "client" + std::to_string(i);
        simulation.add(name, nothing, with(1));
        Runtime& client = *simulation.runtime(name);
        channels[name] = client.connect("sim://server").value();
        const auto reply = client.block_on(ask(channels[name]));
        REQUIRE(reply);
        context_of[name] = static_cast<unsigned>(std::stoul(std::string(as_text(*reply))));
    }
    simulation.stall("server", 1, 2s);
    int delayed = 0;
    for (auto& [name, channel] : channels) {
        const auto reply = simulation.runtime(name)->block_on(ask(channel, {.timeout = 100ms}));
        CHECK(reply.ok() == (context_of[name] != 1));
        delayed += !reply.ok();
    }
    CHECK(delayed >= 1);
    simulation.run_for(2s);
    for (auto& [name, channel] : channels)
        CHECK(simulation.runtime(name)->block_on(ask(channel, {.timeout = 1s})));
    channels.clear();
}

TEST_CASE("simulation: submits go from context to context, and each runs once") {
    Simulation simulation(9);
    simulation.add("host", nothing, with(5));
    Runtime& host = *simulation.runtime("host");
    std::map<int, int> ran;
    const auto go = [&](unsigned k) -> Task<void> {
        for (int i = 0; i < 100; ++i) {
            const int name = static_cast<int>(k) * 1000 + i;
            const auto there = [&]() -> Task<unsigned> {
                ++ran[name];
                (void)co_await sleep_for(Duration(1000 * (i % 7)));
                co_return *host.here();
            };
            const unsigned target = (k + static_cast<unsigned>(i)) % 5;
            const unsigned at = co_await host.context(target).submit(there);
            CHECK(at == target);
            CHECK(host.here() == k);
        }
    };
    host.block_on(host.on_all(go));
    CHECK(ran.size() == 500);
    for (const auto& [name, times] : ran) CHECK(times == 1);
}

TEST_CASE("simulation: a host with several contexts ends in order while calls are under way") {
    Simulation simulation(21);
    simulation.add("server", server("sim://server"), with(3));
    simulation.add("client", nothing, with(3));
    Runtime& client = *simulation.runtime("client");
    Channel channel = client.connect("sim://server").value();
    // A call that the ending server refuses has no effect.
    const auto many = [&](unsigned) -> Task<int> {
        int lost = 0;
        for (int i = 0; i < 200; ++i) {
            const auto reply = co_await ask(channel, {.timeout = 5s});
            lost += !reply && reply.status().effect() != Effect::none;
            if (!reply) (void)co_await sleep_for(1ms);
        }
        const auto last = co_await ask(channel, {.timeout = 5s});
        co_return lost + !last.ok();
    };
    simulation.in(300us, [&] { simulation.end("server"); });
    simulation.in(50ms, [&] { simulation.start("server"); });
    for (const int lost : client.block_on(client.on_all(many))) CHECK(lost == 0);
    channel = Channel();
}

TEST_CASE("simulation: busy clients of a server that restarts with more contexts use all of them") {
    constexpr int clients = 16;
    Simulation simulation(37);
    const auto serve = [&](const std::string& name, unsigned contexts) {
        RuntimeOptions options = with(contexts);
        options.peers_max = clients;  // Half of them may name one context.
        simulation.add(name, server("sim://server"), options);
    };
    serve("narrow", 1);
    std::vector<Channel> channels;
    int ended = 0, good = 0;
    for (int i = 0; i < clients; ++i) {
        const std::string name = "client" + std::to_string(i);
        simulation.add(name, nothing, with(1));
        channels.push_back(simulation.runtime(name)->connect("sim://server").value());
        REQUIRE(simulation.runtime(name)->block_on(ask(channels.back())));
    }
    for (Channel& channel : channels) {
        channel.call(number, {}, {.timeout = 20s, .idempotent = true},
                     [&](const Status& status, ByteView) {
                         ++ended;
                         good += status.ok();
                     });
    }
    simulation.crash("narrow");
    serve("wide", 4);
    REQUIRE(simulation.run_until([&] { return ended == clients; }, 60s));
    CHECK(good == clients);
    std::map<std::string, int> served;
    for (int i = 0; i < clients; ++i) {
        Runtime& client = *simulation.runtime("client" + std::to_string(i));
        const auto reply = client.block_on(ask(channels[static_cast<std::size_t>(i)]));
        REQUIRE(reply);
        ++served[std::string(as_text(*reply))];
    }
    REQUIRE(served.size() == 4);
    for (const auto& [context, count] : served) CHECK((count >= 3 && count <= 5));
    channels.clear();
}

TEST_CASE("simulation: a server that restarts with other contexts keeps its pinned clients right") {
    Simulation simulation(31);
    simulation.add("big", server("sim://server"), with(5));
    simulation.add("client", nothing, with(2));
    Runtime& client = *simulation.runtime("client");
    Channel channel = client.connect("sim://server").value();
    for (unsigned k = 0; k < 5; ++k) {
        const auto reply = client.block_on(ask(channel.on(k)));
        REQUIRE(reply);
        CHECK(as_text(*reply) == std::to_string(k));
    }
    // Another host takes over the name, with fewer contexts.
    simulation.crash("big");
    simulation.add("small", server("sim://server"), with(2));
    // The client detects the end of the former one.
    for (unsigned k = 0; k < 5; ++k) (void)client.block_on(ask(channel.on(k), {.timeout = 10s}));
    for (unsigned k = 0; k < 5; ++k) {
        const auto reply = client.block_on(ask(channel.on(k), {.timeout = 10s}));
        INFO(reply.status().to_string());
        if (k < 2) {
            REQUIRE(reply);
            CHECK(as_text(*reply) == std::to_string(k));
        } else {
            CHECK(reply.status().code() == Code::out_of_range);
            CHECK(reply.status().effect() == Effect::none);
        }
    }
    CHECK(channel.contexts() == 2);
    for (std::uint64_t hash = 0; hash < 10; ++hash) {
        const auto reply = client.block_on(ask(channel.by(hash)));
        REQUIRE(reply);
        CHECK(as_text(*reply) == std::to_string(place(hash, 2)));
    }
    channel = Channel();
}

TEST_CASE("simulation: a key finds a context again when the server restarts with fewer") {
    for (const unsigned contexts : {2u, 1u}) {
        CAPTURE(contexts);
        Simulation simulation(51);
        simulation.add("server", server("sim://server"), with(7));
        simulation.add("client", nothing, with(2));
        Runtime& client = *simulation.runtime("client");
        Channel channel = client.connect("sim://server").value();
        std::uint64_t hash = 0;
        while (place(hash, 7) != 6) ++hash;
        // Nothing but this key: no other connection shows how many contexts the server has.
        const auto ask_key = [&] {
            return client.block_on(ask(channel.by(hash), {.timeout = 10s, .idempotent = true}));
        };
        REQUIRE(ask_key());
        const auto before = ask_key();
        REQUIRE(before);
        REQUIRE(as_text(*before) == "6");
        simulation.crash("server");
        simulation.set_options("server", with(contexts));
        simulation.start("server");
        const auto refused = ask_key();
        CHECK(refused.status().code() == Code::out_of_range);
        CHECK(channel.contexts() == contexts);
        for (int i = 0; i < 2; ++i) {
            const auto reply = ask_key();
            INFO(reply.status().to_string());
            REQUIRE(reply);
            CHECK(as_text(*reply) == std::to_string(place(hash, contexts)));
        }
        channel = Channel();
    }
}

TEST_CASE("simulation: a refused context shows how many contexts the server has") {
    for (const unsigned contexts : {3u, 1u}) {
        CAPTURE(contexts);
        Simulation simulation(53);
        simulation.add("server", server("sim://server"), with(contexts));
        simulation.add("client", nothing, with(1));
        Runtime& client = *simulation.runtime("client");
        Channel channel = client.connect("sim://server").value();
        CHECK(channel.contexts() == 0);
        const auto refused = client.block_on(ask(channel.on(9)));
        CHECK(refused.status().code() == Code::out_of_range);
        CHECK(channel.contexts() == contexts);
        for (std::uint64_t hash = 0; hash < 10; ++hash) {
            const auto reply = client.block_on(ask(channel.by(hash)));
            REQUIRE(reply);
            CHECK(as_text(*reply) == std::to_string(place(hash, contexts)));
        }
        channel = Channel();
    }
}

namespace {

// A server that grants its regions, with several contexts, and a client.
struct Granting {
    Simulation simulation{41, Options{.checks_access = false}};
    Buffer memory;
    Region region;
    Channel channel;
    Buffer local;

    Granting(std::size_t bytes, unsigned contexts) {
        simulation.add("server", server("sim://server"), with(contexts));
        simulation.add("client", nothing, with(1));
        Runtime& owner = *simulation.runtime("server");
        memory = owner.allocate(bytes).value();
        std::ranges::fill(memory.bytes(), std::byte{7});
        region = owner.expose(memory, {.access = Access::read}).value();
        channel = client().connect("sim://server").value();
        local = client().allocate(bytes).value();
    }
    Runtime& client() { return *simulation.runtime("client"); }
    const api::RuntimeImpl& owner() { return impl_of(*simulation.runtime("server")); }
    void close(std::function<void()> fenced) {
        simulation.act_as("server", [&] { region.close(std::move(fenced)); });
    }
    Status get_through(unsigned context) {
        const auto read = [&]() -> Task<Status> {
            co_return co_await get(channel.on(context), region.ref(), 0, local, {.timeout = 5s});
        };
        return client().block_on(read());
    }
};

}  // namespace

TEST_CASE("simulation: a region is granted by each context, and a fence asks those that did") {
    Granting scene(4096, 4);
    for (const unsigned k : {0u, 1u, 2u, 1u}) {
        std::ranges::fill(scene.local.bytes(), std::byte{0});
        const Status status = scene.get_through(k);
        INFO(status.to_string());
        CHECK(status.ok());
        CHECK(std::ranges::equal(scene.local.bytes(), scene.memory.bytes()));
    }
    bool is_fenced = false;
    const RegionRef ref = scene.region.ref();
    scene.close([&] { is_fenced = true; });
    REQUIRE(scene.simulation.run_until([&] { return is_fenced; }, 1s));
    CHECK(scene.owner().nodes[0]->bulk.regions->counters().asked == 2);
    const auto read = [&]() -> Task<Status> {
        co_return co_await get(scene.channel.on(1), ref, 0, scene.local, {.timeout = 5s});
    };
    CHECK(scene.client().block_on(read()).code() == Code::permission_denied);
}

TEST_CASE("simulation: a fence waits for the transfers that another context has granted") {
    Granting scene(32u << 20, 2);
    CHECK(scene.get_through(1).ok());  // The connection exists.
    std::optional<Status> ended;
    scene.simulation.act_as("client", [&] {
        scene.channel.on(1).get(scene.region.ref(), 0, scene.local, {.timeout = 5s},
                                [&](const Status& status) { ended = status; });
    });
    scene.simulation.run_for(100us);
    REQUIRE_FALSE(ended);
    bool is_fenced = false;
    scene.close([&] { is_fenced = true; });
    REQUIRE(scene.simulation.run_until([&] { return ended.has_value(); }, 5s));
    CHECK_FALSE(is_fenced);  // The client's reply is under way.
    CHECK(ended->code() == Code::permission_denied);
    CHECK(scene.simulation.run_until([&] { return is_fenced; }, 1s));
    CHECK(scene.simulation.late_accesses() == 0);
}

TEST_CASE("simulation: a fence ends the connection of a client of another context that is paused") {
    Granting scene(32u << 20, 2);
    CHECK(scene.get_through(1).ok());
    std::optional<Status> ended;
    scene.simulation.act_as("client", [&] {
        scene.channel.on(1).get(scene.region.ref(), 0, scene.local, {.timeout = 60s},
                                [&](const Status& status) { ended = status; });
    });
    scene.simulation.run_for(100us);
    REQUIRE_FALSE(ended);
    scene.simulation.pause("client");
    bool is_fenced = false;
    scene.close([&] { is_fenced = true; });
    scene.simulation.run_for(1s);
    CHECK_FALSE(is_fenced);
    CHECK(scene.simulation.run_until([&] { return is_fenced; }, 12s));
    scene.simulation.resume("client");
    CHECK(scene.simulation.run_until([&] { return ended.has_value(); }, 5s));
    CHECK_FALSE(ended->ok());
    CHECK(scene.simulation.late_accesses() == 0);
}

// Else a test would depend on the machine.
TEST_CASE("simulation: contexts that never sleep need no cpus") {
    Simulation simulation(1);
    RuntimeOptions options = with(64);
    options.wait = WaitMode::spin;
    simulation.add("server", nothing, options);
    CHECK(simulation.is_up("server"));
}
