// Regions of a simulated host with stalled contexts: a lease ends at all of them.
#include <algorithm>
#include <vector>

#include <weft/await.h>
#include <weft/sim.h>

#include "support/catch.h"
#include "support/contexts.h"

using namespace weft;
using namespace weft::sim;
using weft::test::with_contexts;

namespace {

// A server with two contexts, and a client that writes through each.
struct StalledHome {
    Simulation simulation{43};
    Buffer memory;
    Channel channels[2];  // To each context.
    Buffer local;

    StalledHome() {
        const auto listen = [](Runtime& runtime) -> std::shared_ptr<void> {
            REQUIRE(runtime.listen("sim://server").ok());
            return nullptr;
        };
        const auto none = [](Runtime&) -> std::shared_ptr<void> { return nullptr; };
        simulation.add("server", listen, with_contexts(2));
        simulation.add("client", none, with_contexts(1));
        memory = server().allocate(4096).value();
        const Channel any = client().connect("sim://server").value();
        for (const unsigned k : {0u, 1u}) channels[k] = any.on(k);
        local = client().allocate(4096).value();
        Region first = expose({});  // For the connections.
        for (const unsigned k : {0u, 1u}) REQUIRE(put_through(k, first.ref(), 0) == Code::ok);
        simulation.act_as("server", [&] { first.close(); });
    }
    Runtime& server() { return *simulation.runtime("server"); }
    Runtime& client() { return *simulation.runtime("client"); }
    Region expose(Duration lease) {
        return server().expose(memory, {.access = Access::write, .lease = lease}).value();
    }
    Code put_through(unsigned context, const RegionRef& ref, std::uint8_t value) {
        std::ranges::fill(local.bytes(), std::byte{value});
        const auto write = [&]() -> Task<Status> {
            co_return co_await put(channels[context], ref, 0, local, {.timeout = 2s});
        };
        return client().block_on(write()).code();
    }
    bool holds(std::uint8_t value) {
        return std::ranges::all_of(memory.bytes(),
                                   [&](std::byte one) { return one == std::byte{value}; });
    }
};

}  // namespace

TEST_CASE("simulation: a lease ends at each context, whichever of them are stalled") {
    for (const std::vector<unsigned>& stalled :
         std::vector<std::vector<unsigned>>{{0}, {1}, {0, 1}}) {
        StalledHome scene;
        Region region = scene.expose(50ms);
        CHECK(scene.put_through(0, region.ref(), 1) == Code::ok);
        CHECK(scene.put_through(1, region.ref(), 2) == Code::ok);
        for (const unsigned k : stalled) scene.simulation.stall("server", k, 1s);
        CHECK(scene.put_through(1, region.ref(), 3) == Code::ok);
        scene.simulation.run_for(60ms);
        for (const unsigned k : {0u, 1u})
            CHECK(scene.put_through(k, region.ref(), 4) == Code::permission_denied);
        CHECK(scene.holds(3));
        scene.simulation.run_for(2s);
        for (const unsigned k : {0u, 1u})
            CHECK(scene.put_through(k, region.ref(), 5) == Code::permission_denied);
        CHECK(scene.holds(3));
    }
}

TEST_CASE("simulation: leases of many regions end in order, and closed regions leave none") {
    StalledHome scene;
    std::vector<Region> regions;
    for (int i = 0; i < 8; ++i) regions.push_back(scene.expose((8 - i) * 20ms));
    scene.simulation.act_as("server", [&] { regions[4].close(); });
    scene.simulation.stall("server", 0, 1s);
    for (int i = 7; i >= 0; --i) {
        CAPTURE(i);
        const Code before = scene.put_through(1, regions[i].ref(), 2);
        CHECK(before == (i == 4 ? Code::permission_denied : Code::ok));
        scene.simulation.run_for(20ms);
        CHECK(scene.put_through(1, regions[i].ref(), 3) == Code::permission_denied);
        CHECK(scene.holds(2) == (i != 4));
        std::ranges::fill(scene.memory.bytes(), std::byte{0});
    }
}
