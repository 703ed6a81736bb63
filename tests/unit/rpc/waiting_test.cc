// Waiting calls: sent when any place is freed, refused only for the calls ahead of them.
#include "support/lost_pair.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId watch("test.Watch/Watch");

struct Watch final : Service {
    std::vector<Call> held;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(watch, [this](Call call) { held.push_back(std::move(call)); });
    }
};

// Two servers for a client with at most ten calls in flight.
struct Crowded {
    Crowded() {
        other.hold = true;
        REQUIRE(rig.add("one").add(one).ok());
        REQUIRE(rig.runtimes.back()->add(watched).ok());
        REQUIRE(rig.add("other").add(other).ok());
        to_one = client.connect("sim://one").value();
        to_other = client.connect("sim://other").value();
        CallOutcome warm;
        to_one.call(echo_method, {}, {}, warm.done());
        REQUIRE(rig.run_until([&] { return warm.completions == 1; }));
    }
    ~Crowded() {
        other.held.clear();
        watched.held.clear();
    }
    Echo one, other;
    Watch watched;
    SimRig rig;
    Runtime& client = rig.add("", {.calls_in_flight_max = 10});
    Channel to_one, to_other;
};

}  // namespace

TEST_CASE("waiting: a server with a call in flight gets places that calls to others free") {
    Crowded crowd;
    CallOutcome watching, quick;
    std::vector<CallOutcome> nine(9);
    crowd.to_one.call(watch, {}, {.timeout = 1h}, watching.done());
    REQUIRE(crowd.rig.run_until([&] { return crowd.watched.held.size() == 1; }));
    for (CallOutcome& outcome : nine) crowd.to_other.call(echo_method, {}, {}, outcome.done());
    REQUIRE(crowd.rig.run_until([&] { return crowd.other.held.size() == 9; }));
    crowd.to_one.call(echo_method, {}, {}, quick.done());
    crowd.rig.run_for(1ms);
    CHECK(quick.completions == 0);
    crowd.other.held.clear();
    crowd.rig.run_for(1ms);
    CHECK(quick.completions == 1);
    CHECK(quick.status.ok());
    crowd.watched.held.clear();
    crowd.rig.run_for(1ms);
}

TEST_CASE("waiting: calls lost with a restarted server free their places for other servers") {
    Echo second;
    Crowded crowd;
    std::vector<CallOutcome> held(10);
    CallOutcome quick;
    for (CallOutcome& outcome : held) crowd.to_other.call(echo_method, {}, {}, outcome.done());
    REQUIRE(crowd.rig.run_until([&] { return crowd.other.held.size() == 10; }));
    crowd.to_one.call(echo_method, {}, {}, quick.done());
    crowd.rig.run_for(1ms);
    CHECK(quick.completions == 0);
    crowd.rig.kill("other");
    REQUIRE(crowd.rig.add("other").add(second).ok());
    REQUIRE(crowd.rig.run_until([&] { return held[9].completions == 1; }));
    crowd.rig.run_for(1ms);
    CHECK(quick.completions == 1);
    CHECK(quick.status.ok());
}

TEST_CASE("waiting: the estimate of a slow server is dropped when no call waits for it") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    std::vector<CallOutcome> slow(1100), burst(1100);
    for (CallOutcome& outcome : slow)
        lost.channel.call(echo_method, {}, {.timeout = 1s}, outcome.done());
    lost.rig.run_for(1ms);
    for (int i = 0; i < 50; ++i) {
        lost.service.held.pop_back();
        lost.rig.run_for(1ms);
    }
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    for (CallOutcome& outcome : burst)
        lost.channel.call(echo_method, {}, {.timeout = 1s}, outcome.done());
    REQUIRE(lost.run_until_empty());
    CHECK(std::all_of(burst.begin(), burst.end(),
                      [](const CallOutcome& outcome) { return outcome.status.ok(); }));
}

TEST_CASE("waiting: only the calls ahead of a call can cause its refusal") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    std::vector<CallOutcome> low(3000);
    for (CallOutcome& outcome : low)
        lost.channel.call(echo_method, {}, {.timeout = 10s}, outcome.done());
    lost.rig.run_for(1ms);
    for (int i = 0; i < 200; ++i) {
        lost.service.held.pop_back();
        lost.rig.run_for(1ms);
    }
    CallOutcome high, same;
    lost.channel.call(echo_method, {}, {.timeout = 1s, .priority = 7}, high.done());
    lost.channel.call(echo_method, {}, {.timeout = 1s}, same.done());
    lost.rig.run_for(10us);
    CHECK(high.completions == 0);
    CHECK(same.status.code() == Code::resource_exhausted);
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(high.status.ok());
}

TEST_CASE("waiting: latencies include the calls that waited") {
    Lost lost;
    lost.warm_up();
    std::vector<CallOutcome> many(5000);
    for (CallOutcome& outcome : many) lost.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(lost.run_until_empty());
    const std::string state = lost.named.state();
    INFO(state);
    const std::string row = "test.Echo/Echo: n = ";
    const std::size_t at = state.find(row);
    REQUIRE(at != state.npos);
    // One call of 64 is a sample; the thousand calls that are sent at once would give 16.
    CHECK(std::stoi(state.substr(at + row.size())) > 50);
}

TEST_CASE("waiting: the reply rate of an old burst refuses no call of the next burst") {
    constexpr std::size_t plain_slots = 1016;
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    const auto answer = [&](int replies) {
        for (int i = 0; i < replies; ++i) {
            lost.service.held.back().reply({});
            lost.service.held.pop_back();
        }
    };
    // A few replies arrive while calls wait; the calls that still wait expire.
    std::vector<CallOutcome> first(plain_slots + 10);
    for (CallOutcome& one : first) lost.channel.call(echo_method, {}, {.timeout = 5s}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == plain_slots; }));
    answer(5);
    lost.rig.run_for(6s);
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    lost.rig.run_for(3600s);

    std::vector<CallOutcome> second(plain_slots + 200);
    for (CallOutcome& one : second) lost.channel.call(echo_method, {}, {.timeout = 5s}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == plain_slots; }));
    answer(20);
    lost.rig.run_for(1ms);
    CallOutcome late;
    lost.channel.call(echo_method, {}, {.timeout = 5s}, late.done());
    lost.rig.run_for(1ms);
    INFO(late.status.to_string());
    CHECK(late.completions == 0);
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(late.status.ok());
}
