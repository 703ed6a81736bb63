// Calls that end their server, and operations that start after the deadline of their call.
#include <algorithm>

#include <weft/await.h>

#include "support/lost_pair.h"

namespace rpc_server_restarts_test {

using namespace weft;
using namespace weft::test;

// Kills and restarts the server each time it holds the call. Returns the number of restarts.
int restarts_with(Lost& lost, const CallOutcome& outcome) {
    int restarts = 0;
    while (outcome.completions == 0 && restarts < 100) {
        const auto comes = [&] { return !lost.service.held.empty() || outcome.completions != 0; };
        REQUIRE(lost.rig.run_until(comes));
        if (outcome.completions != 0) break;
        ++restarts;
        lost.rig.kill("server");
        lost.service.held.clear();
        REQUIRE(lost.rig.add("server").add(lost.service).ok());
    }
    return restarts;
}

TEST_CASE("recovery: an idempotent call fails when it ends its server again and again") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome;
    SECTION("an idempotent call fails after five restarts") {
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s, .idempotent = true},
                          outcome.done());
        CHECK(restarts_with(lost, outcome) == 5);
        CHECK(outcome.status.text() == "the server ended 5 times while it had this call");
    }
    SECTION("another call runs once") {
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s}, outcome.done());
        CHECK(restarts_with(lost, outcome) == 1);
    }
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == Effect::unknown);
    // The restarted server serves other calls.
    lost.service.hold = false;
    lost.service.held.clear();
    CallOutcome next;
    lost.channel.call(echo_method, as_bytes("y"), {}, next.done());
    REQUIRE(lost.run_until_empty());
    CHECK(next.reply == "y");
    CHECK(lost.calls.in_flight() == 0);
}

TEST_CASE("recovery: calls fail within 3 s when a server restarts and falls silent at once") {
    constexpr std::size_t slots = rpc::slots_max - rpc::ClientSession::nested_slots;
    std::vector<CallOutcome> outcomes(slots + 1);  // The last one waits for a slot.
    Lost lost;
    lost.service.hold = true;
    for (CallOutcome& one : outcomes) {
        lost.channel.call(echo_method, {}, {.timeout = 60s}, one.done());
    }
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == slots; }));
    lost.rig.kill("server");
    Runtime& second = lost.rig.add("server");
    // The second server has accepted the connection, but has not granted the session.
    REQUIRE(lost.rig.run_until([&] { return outcomes.front().completions == 1; }));
    CHECK(outcomes.front().status.text() == "the server restarted");
    CHECK(outcomes.back().completions == 0);
    auto& all = lost.rig.runtimes;
    const auto at =
        std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.get() == &second; });
    auto stopped = std::move(*at);
    all.erase(at);
    const TimePoint since = lost.rig.clock->now();
    REQUIRE(lost.rig.run_until([&] { return outcomes.back().completions == 1; }));
    CHECK(lost.rig.clock->now() - since < 3010ms);
    CHECK(outcomes.back().status.code() == Code::unavailable);
    CHECK(outcomes.back().status.effect() == Effect::none);
    all.push_back(std::move(stopped));
    lost.service.held.clear();
}

TEST_CASE("recovery: an idempotent call survives four restarts of its server") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s, .idempotent = true},
                      outcome.done());
    for (int restarts = 0; restarts < 4; ++restarts) {
        REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
        lost.rig.kill("server");
        lost.service.held.clear();
        REQUIRE(lost.rig.add("server").add(lost.service).ok());
    }
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    lost.service.held[0].reply(as_bytes("z"));
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(outcome.status.ok());
    CHECK(outcome.reply == "z");
}

// Its handler takes twice the timeout of its call, then starts a call and a transfer.
struct Slow final : Service {
    static constexpr MethodId method{"test.Slow/Go"};
    Slow(Channel& to, SimRig& of) : other(to), rig(of) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(method, [this](Call call) {
            const RegionRef from;
            Buffer into = buffer;
            rig.clock->advance(20ms);
            other.call(echo_method, as_bytes("x"), {}, called.done());
            call.get(from, 0, into, [this](const Status& status) { got = status; });
            held.push_back(std::move(call));
        });
    }
    Channel& other;
    SimRig& rig;
    Buffer buffer;
    CallOutcome called;
    Status got;
    std::vector<Call> held;
};

TEST_CASE("nested: operations are not sent when the turn has outlasted the call's deadline") {
    CallOutcome outcome;
    Channel to_echo;
    SimRig* in = nullptr;
    Echo echo;
    std::optional<Slow> slow;
    SimRig rig;
    in = &rig;
    slow.emplace(to_echo, *in);
    REQUIRE(rig.add("echo").add(echo).ok());
    Runtime& middle = rig.add("server");
    REQUIRE(middle.add(*slow).ok());
    slow->buffer = middle.allocate(8).value();
    to_echo = middle.connect("sim://echo").value();
    CallOutcome warm;
    to_echo.call(echo_method, {}, {}, warm.done());
    REQUIRE(rig.run_until([&] { return warm.completions > 0; }));
    Channel channel = rig.add("").connect("sim://server").value();
    channel.call(Slow::method, {}, {.timeout = 10ms}, outcome.done());
    REQUIRE(rig.run_until([&] { return slow->called.completions > 0 && !slow->got.ok(); }));
    CHECK(slow->called.status.code() == Code::deadline_exceeded);
    CHECK(slow->called.status.effect() == Effect::none);
    CHECK(slow->got.code() == Code::deadline_exceeded);
    rig.run_for(10ms);
    CHECK(echo.handled == 1);
    slow->held.clear();
    to_echo = Channel();
}

}  // namespace rpc_server_restarts_test
