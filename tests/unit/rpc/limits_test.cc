// Bounds on the calls in flight of a client and on the load of a server.
#include "base/manual_clock.h"
#include "rpc/channel_impl.h"
#include "support/lost_pair.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("session: a call is retried within a budget when the server has no free handler") {
    Echo service;
    SimRig rig;
    service.hold = true;
    REQUIRE(rig.add("server", {.handlers_max = 2}).add(service).ok());
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    const rpc::Client& calls = node_of(client).client;
    std::vector<CallOutcome> outcomes(4);
    channel.call(echo_method, as_bytes("a"), {}, outcomes[0].done());
    channel.call(echo_method, as_bytes("b"), {}, outcomes[1].done());
    REQUIRE(rig.run_until([&] { return service.held.size() == 2; }));
    const std::vector<std::byte> large(1000);
    SECTION("until a handler is free") {
        channel.call(echo_method, as_bytes("c"), {}, outcomes[2].done());
        rig.run_for(50ms);
        CHECK(outcomes[2].completions == 0);
        CHECK(calls.counters().retried > 0);
        service.held[0].reply({});
        service.held.erase(service.held.begin());
        REQUIRE(rig.run_until([&] { return service.held.size() == 2; }));
        service.held.clear();
        REQUIRE(rig.run_until([&] { return outcomes[2].completions > 0; }));
    }
    SECTION("until the pause would pass its deadline, or the budget is used up") {
        channel.call(echo_method, as_bytes("c"), {.timeout = 30ms}, outcomes[2].done());
        channel.call(echo_method, as_bytes("d"), {.timeout = 1h}, outcomes[3].done());
        REQUIRE(
            rig.run_until([&] { return outcomes[2].completions + outcomes[3].completions == 2; }));
        for (int i : {2, 3}) {
            CHECK(outcomes[static_cast<std::size_t>(i)].status.code() == Code::resource_exhausted);
            CHECK(outcomes[static_cast<std::size_t>(i)].status.effect() == Effect::none);
        }
        CHECK(calls.counters().retried <= 10);
    }
    SECTION("unless its request was not kept") {
        channel.call(echo_method, large, {}, outcomes[2].done());
        REQUIRE(rig.run_until([&] { return outcomes[2].completions > 0; }));
        CHECK(outcomes[2].status.code() == Code::resource_exhausted);
        CHECK(calls.counters().retried == 0);
    }
    SECTION("and it may be cancelled, or lose its channel, while it backs off") {
        const OperationId id = channel.call(echo_method, as_bytes("c"), {}, outcomes[2].done());
        channel.call(echo_method, as_bytes("d"), {}, outcomes[3].done());
        REQUIRE(rig.run_until([&] { return calls.counters().retried >= 2; }));
        channel.cancel_call(id);
        rig.run_for(1us);
        CHECK(outcomes[2].status.code() == Code::cancelled);
        channel = Channel();
        rig.run_for(1us);
        CHECK(outcomes[3].status.code() == Code::cancelled);
    }
    service.held.clear();
    rig.run_for(1ms);
    CHECK(calls.is_balanced());
}

TEST_CASE("session: the first retry of a call is quick, also after long pauses of other calls") {
    Echo service;
    SimRig rig;
    service.hold = true;
    REQUIRE(rig.add("server", {.handlers_max = 1}).add(service).ok());
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    const rpc::Client& calls = node_of(client).client;
    CallOutcome holder, unlucky, next;
    channel.call(echo_method, {}, {.timeout = 1h}, holder.done());
    REQUIRE(rig.run_until([&] { return service.held.size() == 1; }));
    // Retries with growing pauses until the budget is used up.
    channel.call(echo_method, {}, {.timeout = 1h}, unlucky.done());
    REQUIRE(rig.run_until([&] { return unlucky.completions == 1; }));
    REQUIRE(calls.counters().retried == 10);
    service.hold = false;
    service.held.clear();
    REQUIRE(rig.run_until([&] { return holder.completions == 1; }));
    for (int i = 0; i < 200; ++i) {
        CallOutcome good;
        channel.call(echo_method, {}, {}, good.done());
        REQUIRE(rig.run_until([&] { return good.completions == 1; }));
        REQUIRE(good.status.ok());
    }
    service.hold = true;
    CallOutcome second_holder;
    channel.call(echo_method, {}, {.timeout = 1h}, second_holder.done());
    REQUIRE(rig.run_until([&] { return service.held.size() == 1; }));
    channel.call(echo_method, {}, {.timeout = 1h}, next.done());
    rig.run_for(200ms);
    CHECK(calls.counters().retried >= 12);
    service.hold = false;
    service.held.clear();
    REQUIRE(rig.run_until([&] { return next.completions + second_holder.completions == 2; }));
    CHECK(next.status.ok());
}

TEST_CASE("session: the bytes of large requests in handlers are bounded") {
    Echo service;
    SimRig rig;
    service.hold = true;
    REQUIRE(rig.add("server", {.handler_bytes_max = 1 << 20}).add(service).ok());
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    const std::vector<std::byte> large(10'000), small(1000);
    std::vector<CallOutcome> outcomes(110), others(100);
    const auto failed = [&] {
        return std::count_if(outcomes.begin(), outcomes.end(), [](const CallOutcome& outcome) {
            return outcome.status.code() == Code::resource_exhausted;
        });
    };
    for (CallOutcome& outcome : outcomes) channel.call(echo_method, large, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return service.held.size() + failed() == 110; }));
    CHECK(service.held.size() == (1 << 20) / (large.size() + sizeof(rpc::RequestHeader)));
    // Small requests have room.
    for (CallOutcome& outcome : others) channel.call(echo_method, small, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return service.held.size() + failed() == 210; }));
    // Large requests have room again after some have completed.
    service.held.clear();
    service.hold = false;
    CallOutcome more;
    channel.call(echo_method, large, {}, more.done());
    REQUIRE(rig.run_until([&] { return more.completions > 0; }));
    CHECK(more.status.ok());
}

TEST_CASE("session: the calls in flight of a context are bounded, and servers take turns") {
    Echo one, other;
    SimRig rig;
    one.hold = true;
    REQUIRE(rig.add("one").add(one).ok());
    REQUIRE(rig.add("other").add(other).ok());
    Runtime& client = rig.add("", {.calls_in_flight_max = 10});
    Channel to_one = client.connect("sim://one").value();
    Channel to_other = client.connect("sim://other").value();
    std::vector<CallOutcome> held(20), quick(20);
    for (CallOutcome& outcome : held) to_one.call(echo_method, {}, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return one.held.size() == 10; }));
    for (CallOutcome& outcome : quick) to_other.call(echo_method, {}, {}, outcome.done());
    rig.run_for(1ms);
    CHECK(one.held.size() == 10);
    CHECK(other.handled == 0);
    // Each completed call frees a place, for either server in turn.
    std::vector<Call> first = std::exchange(one.held, {});
    for (Call& call : first) call.reply({});
    rig.run_for(1ms);
    CHECK(other.handled > 0);
    CHECK(one.held.size() > 0);
    one.hold = false;
    one.held.clear();
    REQUIRE(rig.run_until([&] { return node_of(client).client.in_flight() == 0; }));
    for (const CallOutcome& outcome : quick) CHECK(outcome.status.ok());
    CHECK(node_of(client).client.is_balanced());
}

TEST_CASE("session: the bytes in flight of a context are bounded") {
    Echo service;
    SimRig rig;
    service.hold = true;
    REQUIRE(rig.add("server").add(service).ok());
    // One peer: a quarter, at least 1 MiB.
    Runtime& client = rig.add("", {.bytes_in_flight_max = 1 << 20});
    Channel channel = client.connect("sim://server").value();
    const std::vector<std::byte> body(60'000);
    std::vector<CallOutcome> outcomes(40);
    service.hold = false;
    CallOutcome warm;
    channel.call(echo_method, {}, {}, warm.done());
    REQUIRE(rig.run_until([&] { return warm.completions > 0; }));
    service.hold = true;
    for (CallOutcome& outcome : outcomes) channel.call(echo_method, body, {}, outcome.done());
    rig.run_for(10ms);
    CHECK(service.held.size() == (1 << 20) / 60'000);
    service.hold = false;
    service.held.clear();
    REQUIRE(rig.run_until([&] { return node_of(client).client.in_flight() == 0; }));
}

TEST_CASE("session: a call that would wait too long is refused at once") {
    Lost lost;
    lost.warm_up();
    // A server that answers one call each millisecond.
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(3000);
    for (CallOutcome& one : outcomes)
        lost.channel.call(echo_method, {}, {.timeout = 10s}, one.done());
    lost.rig.run_for(1ms);
    for (int i = 0; i < 200; ++i) {
        REQUIRE_FALSE(lost.service.held.empty());
        lost.service.held.back().reply({});
        lost.service.held.pop_back();
        lost.rig.run_for(1ms);
    }
    // The expected wait is 1.8 s: three quarters of the timeout of `sober`.
    CallOutcome hasty, sober, patient;
    lost.channel.call(echo_method, {}, {.timeout = 1s}, hasty.done());
    lost.channel.call(echo_method, {}, {.timeout = 2400ms}, sober.done());
    lost.channel.call(echo_method, {}, {.timeout = 20s}, patient.done());
    lost.rig.run_for(10us);
    CHECK(hasty.completions == 1);
    CHECK(hasty.status.code() == Code::resource_exhausted);
    CHECK(hasty.status.effect() == Effect::none);
    CHECK(sober.completions == 0);
    CHECK(patient.completions == 0);
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(sober.status.ok());
    CHECK(patient.status.ok());
}

TEST_CASE("session: calls made after an outage are not refused because of its length") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(2000), later(1200);
    for (CallOutcome& one : outcomes)
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s}, one.done());
    lost.rig.run_for(1ms);
    const auto answer = [&](int calls) {
        for (int i = 0; i < calls; ++i) {
            REQUIRE_FALSE(lost.service.held.empty());
            lost.service.held.back().reply({});
            lost.service.held.pop_back();
            lost.rig.run_for(100us);
        }
    };
    answer(300);
    SECTION("of the connection") {
        lost.lose_connection();
        lost.rig.world->cut("client", "server");
        lost.rig.run_for(900ms);
        lost.rig.world->mend_all();
        lost.rig.run_for(100ms);
    }
    SECTION("of the server") { lost.rig.run_for(5s); }
    answer(20);
    for (CallOutcome& one : later)
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 10s}, one.done());
    answer(1);
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    for (const CallOutcome& one : later) {
        INFO(one.status.to_string());
        REQUIRE(one.status.ok());
    }
}

TEST_CASE("session: cheap calls behind slow ones of another method are not refused") {
    constexpr MethodId scan("test.Echo/Scan");
    struct Scan final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Echo/Scan"), [](Call call) { call.reply({}); });
        }
    } scans;
    Lost lost;
    REQUIRE(lost.server.add(scans).ok());
    lost.warm_up();
    lost.service.hold = true;
    // All slots are taken by calls of 20 ms each, some more wait.
    std::vector<CallOutcome> slow(1100), cheap(300);
    for (CallOutcome& one : slow) lost.channel.call(echo_method, {}, {.timeout = 10s}, one.done());
    lost.rig.run_for(1ms);
    for (int i = 0; i < 80; ++i) {
        lost.service.held.back().reply({});
        lost.service.held.pop_back();
        lost.rig.run_for(20ms);
        for (int k = 0; k < 2; ++k) {
            lost.channel.call(scan, {}, {.timeout = 4s}, cheap[2 * i + k].done());
        }
    }
    lost.service.hold = false;
    for (Call& call : lost.service.held) call.reply({});
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    for (std::size_t i = 0; i < 160; ++i) {
        INFO(i << ": " << cheap[i].status.to_string());
        CHECK(cheap[i].status.code() != Code::resource_exhausted);
    }
}

TEST_CASE("session: a server with queued requests shrinks the window of its clients") {
    struct Slow final : Service {
        base::ManualClock* clock = nullptr;
        std::uint64_t handled = 0;
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(echo_method, [this](Call call) {
                ++handled;
                clock->advance(100us);
                call.reply(call.request());
            });
        }
    } service;
    SimRig rig;
    service.clock = rig.clock.get();
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    std::uint64_t answered = 0, failed = 0;
    Status last;
    bool is_loaded = true;
    Function<void()> ask = [&] {
        channel.call(echo_method, {}, {}, [&](const Status& status, ByteView) {
            ++answered;
            if (!status.ok()) ++failed, last = status;
            if (is_loaded) ask();
        });
    };
    for (std::uint32_t i = 0; i < 2 * rpc::slots_max; ++i) ask();
    REQUIRE(rig.run_until([&] { return answered >= 5000; }));
    INFO(last.to_string());
    CHECK(failed == 0);
    const std::uint32_t under_load = node_of(server).server.window();
    CHECK(under_load < rpc::slots_max);
    CHECK(under_load >= 4);
    CHECK(
        rpc::client_session(*core::Context::find(rpc::ChannelImpl::of(channel)->peer()))->window ==
        under_load);
    // The window is full again after the load has ended.
    is_loaded = false;
    REQUIRE(rig.run_until([&] { return node_of(client).client.in_flight() == 0; }));
    rig.run_for(3s);
    CHECK(node_of(server).server.window() == rpc::slots_max);
    CHECK(
        rpc::client_session(*core::Context::find(rpc::ChannelImpl::of(channel)->peer()))->window ==
        rpc::slots_max);
}
