// Regions that are older than the endpoint over which a peer reaches them.
#include <array>
#include <memory>
#include <vector>

#include <weft/sim.h>

#include "support/catch.h"
#include "support/raw_echo.h"

using namespace weft;

namespace {

constexpr MethodId late_endpoint_pull("test.LateEndpoint/Pull");
constexpr MethodId late_endpoint_take("test.LateEndpoint/Take");
constexpr std::size_t late_endpoint_bytes = 256 * 1024;

struct LateEndpointServer final : Service {
    Runtime* runtime = nullptr;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(late_endpoint_take, [](Call call) { call.reply({}); });
        // Reads the region that the request names.
        registrar.add(late_endpoint_pull, [this](Call call) {
            const RegionRef ref = RegionRef::decode(call.request()).value();
            Buffer into = runtime->allocate(ref.length).value();
            auto kept = std::make_shared<Call>(std::move(call));
            kept->get(ref, 0, into, [kept](const Status& status) {
                if (status.ok()) return kept->reply({});
                kept->fail(status);
            });
        });
    }
};

// A network that checks no access: owners expose and grant.
struct LateEndpointPair {
    explicit LateEndpointPair(std::uint64_t seed) : simulation(seed, {.checks_access = false}) {
        simulation.add("server", [](Runtime& runtime) {
            auto service = std::make_shared<LateEndpointServer>();
            service->runtime = &runtime;
            REQUIRE(runtime.serve(*service, {"sim://server"}).ok());
            return service;
        });
        RuntimeOptions two;
        two.contexts = 2;
        simulation.add(
            "client", [](Runtime&) { return nullptr; }, two);
    }
    Runtime& client() { return *simulation.runtime("client"); }
    Status call(const Channel& channel, const MethodId& method, ByteView body) {
        CallOutcome outcome;
        channel.call(method, body, {}, outcome.done());
        REQUIRE(simulation.run_until([&] { return outcome.completions == 1; }, 10s));
        return outcome.status;
    }

    sim::Simulation simulation;
};

}  // namespace

TEST_CASE("late endpoint: a region that it had no memory for is exposed when a peer opens it") {
    LateEndpointPair pair(1);
    Buffer memory = pair.client().allocate(late_endpoint_bytes).value();
    const Region region = pair.client().expose(memory, {.access = Access::read}).value();
    pair.simulation.limit_memory("client", 1);
    REQUIRE(pair.client().listen("sim://client").ok());
    pair.simulation.heal();
    const Channel channel = pair.client().connect("sim://server").value();
    std::array<std::byte, RegionRef::wire_bytes> ref;
    region.ref(0, late_endpoint_bytes).encode(ref);
    CHECK(pair.call(channel, late_endpoint_pull, ref).ok());
}

TEST_CASE("late endpoint: a large body that it had no memory for leaves once it has") {
    const std::vector<std::byte> body(late_endpoint_bytes);
    int begun = 0;
    for (std::uint64_t seed = 1; seed <= 100; ++seed) {
        CAPTURE(seed);
        LateEndpointPair pair(seed);
        const Channel channel = pair.client().connect("sim://server").value();
        const auto call = [&] {
            CallOutcome outcome;
            pair.client().context(1).executor().post(
                [&] { channel.call(late_endpoint_take, body, {}, outcome.done()); });
            REQUIRE(pair.simulation.run_until([&] { return outcome.completions == 1; }, 10s));
            return outcome.status;
        };
        // The first call makes the block of its body, then the endpoint of its context.
        pair.simulation.limit_memory("client", 0.5);
        const Status first = call();
        begun += first.ok();
        if (!first.ok()) CHECK(first.code() == Code::resource_exhausted);
        pair.simulation.heal();
        CHECK(call().ok());
    }
    CHECK(begun > 0);
}
