// After a connection was lost: who is found silent, and what is said of calls that may have run.
#include "support/lost_pair.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("recovery: a server that falls silent after its session was resumed is found") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome held;
    lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s}, held.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
    lost.lose_connection();
    REQUIRE(lost.rig.run_until([&] { return lost.calls.counters().resumed == 1; }));
    lost.rig.run_for(100ms);
    // It stands still: its turns don't come any more.
    auto stopped = std::move(lost.rig.runtimes.front());
    lost.rig.runtimes.erase(lost.rig.runtimes.begin());
    const TimePoint since = lost.rig.clock->now();
    REQUIRE(lost.rig.run_until([&] { return held.completions == 1; }));
    CHECK(lost.rig.clock->now() - since < 3010ms);
    CHECK(held.status.code() == Code::unavailable);
    lost.rig.runtimes.insert(lost.rig.runtimes.begin(), std::move(stopped));
    lost.service.held.clear();
    lost.rig.run_for(1ms);
}

TEST_CASE("recovery: an idempotent call that ran never says that it did not") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome;
    const auto run_with = [&](std::size_t bytes) {
        const std::vector<std::byte> body(bytes);
        lost.channel.call(echo_method, body, {.idempotent = true}, outcome.done());
        REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
    };
    const auto lose_the_reply = [&] {
        lost.lose_connection();
        lost.rig.run_for(1us);
        lost.service.held[0].reply({});
        lost.service.held.clear();
    };
    SECTION("when it was lent for the connection that is lost") {
        run_with(200'000);
        lose_the_reply();
        REQUIRE(lost.run_until_empty());
        CHECK(outcome.status.code() == Code::unavailable);
    }
    SECTION("when the server drains before it comes again") {
        run_with(1);
        lose_the_reply();
        lost.server.node().server.drain();
        REQUIRE(lost.run_until_empty());
        CHECK(outcome.status.code() == Code::unavailable);
    }
    SECTION("when the server after it does not know the method") {
        run_with(1);
        lost.rig.kill("server");
        lost.rig.add("server");
        REQUIRE(lost.run_until_empty());
        CHECK(outcome.status.code() == Code::unimplemented);
    }
    CHECK(lost.service.handled == 1);
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.effect() == Effect::unknown);
    CHECK(outcome.status.stage() >= Stage::sent);
    lost.service.held.clear();
}

TEST_CASE("recovery: a reply that crosses the question after it counts, and harms nobody") {
    for (const bool idempotent : {true, false}) {
        Lost lost;
        lost.warm_up();
        lost.service.hold = true;
        CallOutcome outcome, next;
        lost.channel.call(echo_method, as_bytes("x"), {.idempotent = idempotent}, outcome.done());
        REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
        lost.lose_connection();
        // The client does not know yet that it may ask.
        REQUIRE(lost.rig.run_until([&] { return lost.served().resumed == 1; }));
        CHECK(lost.calls.counters().resumed == 0);
        lost.service.held[0].reply(as_bytes("y"));
        lost.service.held.clear();
        REQUIRE(lost.run_until_empty());
        CHECK(outcome.status.ok());
        CHECK(outcome.reply == "y");
        lost.service.hold = false;
        lost.channel.call(echo_method, as_bytes("z"), {}, next.done());
        REQUIRE(lost.run_until_empty());
        CHECK(next.status.ok());
        CHECK(outcome.completions == 1);
        CHECK(lost.service.handled == 2);
        CHECK(lost.calls.counters().lost_connections == 1);
        CHECK(lost.named.node().context.counters().broken_peers == 0);
    }
}

TEST_CASE("recovery: who finds no room for a session is told so, and nothing of his has run") {
    SimRig rig;
    Echo service;
    service.hold = true;
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    Runtime& many = rig.add("");
    std::vector<Channel> channels;
    constexpr std::size_t most = rpc::ServerSessions::sessions_max;
    std::vector<CallOutcome> holders(most), refused(20);
    for (CallOutcome& outcome : holders) {
        channels.push_back(many.connect("sim://server").value());
        channels.back().call(echo_method, {}, {.timeout = 1h}, outcome.done());
    }
    REQUIRE(rig.run_until([&] { return service.held.size() == most; }));
    // Sessions in use make no room, whether their clients are there or not.
    Runtime& last = rig.add("");
    Channel channel = last.connect("sim://server").value();
    for (CallOutcome& outcome : refused) channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return last.node().client.in_flight() == 0; }));
    for (const CallOutcome& outcome : refused) {
        CHECK(outcome.status.code() == Code::resource_exhausted);
        CHECK(outcome.status.effect() == Effect::none);
    }
    CHECK(service.handled == most);
    CHECK(server.node().context.counters().broken_peers == 0);
    // The same channel is served as soon as there is room.
    service.held.pop_back();
    channels.back() = Channel();
    rig.run_for(1ms);
    service.hold = false;
    CallOutcome served;
    channel.call(echo_method, {}, {}, served.done());
    REQUIRE(rig.run_until([&] { return served.completions == 1; }));
    CHECK(served.status.ok());
    service.held.clear();
    rig.run_for(1ms);
}
