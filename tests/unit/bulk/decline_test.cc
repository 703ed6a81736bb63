// Large bodies that a server declines while much waits for their sender.
#include "support/raw_echo.h"
#include "support/sim_rig.h"

namespace bulk_decline_test {

using namespace weft;
using namespace weft::test;

constexpr MethodId decline_method("test.Decline/Decline");

// Its handler queues frames for the client until `waiting` wait, and then declines a body.
struct Decliner final : Service {
    Runtime* runtime = nullptr;
    std::uint32_t waiting = 0;
    std::uint64_t malformed = 0;  // Connections that the decline closed.

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(decline_method, [this](Call call) {
            decline();
            call.reply(ByteView{});
        });
    }

    void decline() {
        core::Context& context = node_of(*runtime).context;
        core::Peer* peer = nullptr;
        for (core::Peer* one : context.endpoints()[0]->peers) peer = one ? one : peer;
        REQUIRE(peer);
        core::FrameHead pong{core::FrameKind::pong, 0, 0, sizeof(core::FrameHead)};
        while (peer->queue.frames < waiting) {
            const core::Context::Claim claim = context.claim(*peer, sizeof pong);
            REQUIRE(claim.data);
            base::store(claim.data, pong);
            context.commit(*peer, claim, sizeof pong);
        }
        bulk::RendezvousBody body;
        body.grant = 1;
        node_of(*runtime).bulk.rendezvous.decline(*peer, body);
        malformed = context.counters().malformed_peers;
    }
};

std::uint64_t malformed_with(std::uint32_t waiting) {
    Decliner service;
    SimRig rig;
    service.runtime = &rig.add("server");
    service.waiting = waiting;
    REQUIRE(service.runtime->add(service).ok());
    const Channel channel = rig.add("").connect("sim://server").value();
    CallOutcome outcome;
    channel.call(decline_method, {}, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return outcome.completions == 1; }));
    return service.malformed;
}

TEST_CASE("a declined body closes no connection while the data of a slow reader waits") {
    const core::ContextOptions options;
    CHECK(malformed_with(0) == 0);
    CHECK(malformed_with(options.waiting_data_max + 2048 - 1) == 0);
    CHECK(malformed_with(options.waiting_data_max + 2048) == 1);
}

}  // namespace bulk_decline_test
