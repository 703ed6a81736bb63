// Time that passes inside a turn because a handler or a completion computes.
#include "support/raw_echo.h"

namespace turn_clock_test {

using namespace weft;
using namespace weft::test;

// More than the latency of the network alone.
constexpr Duration computed = 300ms;
constexpr Duration timeout = 50ms;

TEST_CASE("a timeout starts at the call, however long its turn has already lasted") {
    Pair pair;
    CallOutcome warm, outcome;
    pair.channel.call(echo_method, {}, {}, warm.done());
    REQUIRE(pair.rig.run_until([&] { return warm.completions > 0; }));
    pair.client.executor().post([&] {
        pair.rig.clock->advance(computed);
        pair.channel.call(echo_method, {}, {.timeout = timeout}, outcome.done());
    });
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    INFO(outcome.status.to_string());
    CHECK(outcome.status.ok());
}

TEST_CASE("time_left() of a call decreases while its handler computes") {
    Duration before{}, after{};
    struct Computes final : Service {
        std::function<void(Call&)> handle;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Computes/Go"), [this](Call call) {
                handle(call);
                call.reply({});
            });
        }
    } service;
    SimRig rig;
    REQUIRE(rig.add("server").add(service).ok());
    service.handle = [&](Call& call) {
        before = call.time_left();
        rig.clock->advance(computed);
        after = call.time_left();
    };
    CallOutcome outcome;
    const Channel channel = rig.add("").connect("sim://server").value();
    channel.call(MethodId("test.Computes/Go"), {}, {.timeout = 1s}, outcome.done());
    REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(before - after == computed);
}

}  // namespace turn_clock_test
