// Inline bulk on a connection that is lost, and the reply that arrives over the next connection.
#include "support/lost_pair.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId push_and_hold("test.Ride/PushAndHold");

// Fills the region that the request names with 'p', and keeps the call.
struct PushAndHold final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(push_and_hold, [this](Call call) {
            const RegionRef to = RegionRef::decode(call.request()).value();
            const Buffer from = runtime->allocate(to.length).value();
            std::memset(from.data(), 'p', from.size());
            auto shared = std::make_shared<Call>(std::move(call));
            shared->put(to, 0, from, [this, shared](const Status& status) {
                put = status;
                held.push_back(std::move(*shared));
                held.back().on_cancel([this] { ++cancelled; });
            });
        });
    }
    Runtime* runtime = nullptr;
    Status put = Status(Code::unknown, "never");
    std::vector<Call> held;
    int cancelled = 0;
};

}  // namespace

TEST_CASE("inline bulk: a reply is not OK when its put was lost with the connection") {
    PushAndHold service;
    Lost lost;
    service.runtime = &lost.server;
    REQUIRE(lost.server.add(service).ok());
    lost.warm_up();
    const Buffer memory = lost.named.allocate(64).value();
    std::memset(memory.data(), 'o', 64);
    const Region region = lost.named.expose(memory, {.access = Access::write}).value();
    const RegionRef ref = region.ref();
    std::array<std::byte, RegionRef::wire_bytes> body;
    ref.encode(body);
    CallOutcome outcome;
    lost.channel.call(push_and_hold, body, {.inline_bulk = &ref}, outcome.done());
    REQUIRE(lost.rig.run_until([&] { return service.held.size() == 1; }));
    CHECK(service.put.ok());
    CHECK(service.cancelled == 0);
    lost.lose_connection();
    REQUIRE(lost.rig.run_until([&] { return lost.calls.counters().resumed == 1; }));
    // The client no longer waits for the handler, so the handler is cancelled.
    CHECK(service.cancelled == 1);
    service.held.front().reply(as_bytes("done"));
    REQUIRE(lost.rig.run_until([&] { return outcome.completions > 0; }));
    INFO(outcome.status.to_string());
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == Effect::unknown);
    // The slot serves the next call.
    service.held.clear();
    lost.warm_up();
    CHECK(lost.run_until_empty());
}
