// Calls that end their server, and calls that begin after the deadline of the call around them.
#include <algorithm>

#include <weft/await.h>

#include "support/lost_pair.h"

namespace rpc_lives_test {

using namespace weft;
using namespace weft::test;

// Kills the server whenever it has the call, and starts it again. Returns how many had it.
int lives_of(Lost& lost, const CallOutcome& outcome) {
    int lives = 0;
    while (outcome.completions == 0 && lives < 100) {
        const auto comes = [&] { return !lost.service.held.empty() || outcome.completions != 0; };
        REQUIRE(lost.rig.run_until(comes));
        if (outcome.completions != 0) break;
        ++lives;
        lost.rig.kill("server");
        lost.service.held.clear();
        REQUIRE(lost.rig.add("server").add(lost.service).ok());
    }
    return lives;
}

TEST_CASE("recovery: an idempotent call that ends its server, again and again, fails") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome;
    SECTION("as one that was idempotent") {
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s, .idempotent = true},
                          outcome.done());
        CHECK(lives_of(lost, outcome) == 5);
        CHECK(outcome.status.text() == "the server ended 5 times while it had this call");
    }
    SECTION("one that was not ran once") {
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s}, outcome.done());
        CHECK(lives_of(lost, outcome) == 1);
    }
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == Effect::unknown);
    // The server that is there now serves the others.
    lost.service.hold = false;
    lost.service.held.clear();
    CallOutcome next;
    lost.channel.call(echo_method, as_bytes("y"), {}, next.done());
    REQUIRE(lost.run_until_empty());
    CHECK(next.reply == "y");
    CHECK(lost.calls.in_flight() == 0);
}

TEST_CASE("recovery: a server that restarts and falls silent at once is told within 3 s") {
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
    // It has taken the connection, and not the session.
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

TEST_CASE("recovery: an idempotent call outlives four ends of its server") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s, .idempotent = true},
                      outcome.done());
    for (int lives = 0; lives < 4; ++lives) {
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

// Its handler takes twice the time that the call has, and then begins others.
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

TEST_CASE("nested: what begins in a turn that has outlasted its call's deadline does not leave") {
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

}  // namespace rpc_lives_test
