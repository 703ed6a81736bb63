// The end of a server while the connection of a client is lost: the client may connect again.
#include <array>

#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

namespace rpc_drain {

struct Ending : Lost {
    api::RuntimeImpl& impl = impl_of(server);
    bool is_drained() {
        const auto [left, leaving] = impl.left_to_drain();
        return left == 0 && leaving == 0;
    }
    // Polls is_drained() in turns, as run() does.
    bool is_drained_within(Duration limit) {
        impl.node.context.post([this] { impl.begin_drain(); });
        bool is_done = false;
        for (const TimePoint end = rig.clock->now() + limit; rig.clock->now() < end && !is_done;) {
            impl.node.context.post([this, &is_done] { is_done = is_drained(); });
            rig.run_for(1ms);
        }
        return is_done;
    }
};

TEST_CASE("the end of a server waits for a client that is about to connect again") {
    Ending rig;
    rig.service.hold = true;
    CallOutcome outcome;
    rig.channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    REQUIRE(rig.rig.run_until([&] { return rig.service.held.size() == 1; }));
    rig.impl.begin_drain();
    rig.lose_connection();
    rig.rig.run_for(1ms);
    rig.service.held[0].reply(as_bytes("y"));
    rig.service.held.clear();
    CHECK_FALSE(rig.is_drained());
    REQUIRE(rig.rig.run_until([&] { return rig.is_drained(); }, 5s));
    // The server ends.
    rig.rig.runtimes.erase(rig.rig.runtimes.begin());
    REQUIRE(rig.rig.run_until([&] { return outcome.completions == 1; }));
    INFO(outcome.status.to_string());
    CHECK(outcome.status.ok());
    CHECK(outcome.reply == "y");
}

TEST_CASE("the end of a server waits for a lost client only as long as the client reconnects") {
    Ending rig;
    rig.warm_up();
    node_of(rig.named).context.shutdown(fail(Code::cancelled, "gone without a word"));
    node_of(rig.named).context.close_endpoints();
    rig.rig.run_for(1ms);
    rig.impl.begin_drain();
    CHECK_FALSE(rig.is_drained());
    CHECK(rig.rig.run_until([&] { return rig.is_drained(); }, 1s));
}

TEST_CASE("the end of a server does not wait for a client that ended its session") {
    Ending rig;
    rig.warm_up();
    rig.channel = Channel();
    rig.rig.run_for(1ms);
    rig.impl.begin_drain();
    CHECK(rig.is_drained());
}

TEST_CASE("the end of a server waits for a slow reader, however long its ping takes") {
    Ending rig;
    rig.warm_up();
    rig.service.hold = true;
    std::array<CallOutcome, 20> outcomes;
    for (CallOutcome& outcome : outcomes) {
        rig.channel.call(echo_method, {}, {.timeout = 120s}, outcome.done());
    }
    REQUIRE(rig.rig.run_until([&] { return rig.service.held.size() == outcomes.size(); }));
    weft::sim::Link slow;
    slow.bytes_per_second = 4e4;
    rig.rig.world->set_links(slow);
    const std::vector<std::byte> body(60'000);
    rig.impl.node.context.post([&] {
        for (Call& call : rig.service.held) call.reply(body);
        rig.service.held.clear();
    });
    const TimePoint begin = rig.rig.clock->now();
    CHECK(rig.is_drained_within(60s));
    // Far more than the limit for a silent client.
    CHECK(rig.rig.clock->now() - begin > 20s);
    rig.rig.runtimes.erase(rig.rig.runtimes.begin());
    rig.rig.run_for(1s);
    for (const CallOutcome& outcome : outcomes) {
        INFO(outcome.status.to_string());
        CHECK(outcome.completions == 1);
        CHECK(outcome.status.ok());
    }
}

TEST_CASE("requests that cross the notice of a server's end go to the next server") {
    const std::size_t bytes = GENERATE(8u, 1000u);
    Echo next_service;
    Ending rig;
    rig.warm_up();
    weft::sim::Link late;
    late.latency = 5ms;
    rig.rig.world->set_links(late);
    rig.impl.node.context.post([&] {
        rig.impl.begin_drain();
        CHECK_FALSE(rig.is_drained());
    });
    rig.rig.run_for(1ms);
    // One request in a used slot, two in slots that no call has used.
    std::array<CallOutcome, 3> outcomes;
    const std::string body(bytes, 'x');
    for (CallOutcome& outcome : outcomes) {
        rig.channel.call(echo_method, as_bytes(body), {.timeout = 20s}, outcome.done());
    }
    rig.rig.run_for(500us);
    rig.lose_connection();
    rig.rig.run_for(1ms);
    // The server keeps draining, as if for another client.
    for (int i = 0; i < 10; ++i) {
        rig.impl.node.context.post([&] { (void)rig.is_drained(); });
        rig.rig.run_for(20ms);
    }
    CHECK(rig.impl.node.context.counters().malformed_peers == 0);
    CHECK(rig.served().resumed == 1);
    rig.rig.runtimes.erase(rig.rig.runtimes.begin());
    Runtime& next = rig.rig.add("server");
    REQUIRE(next.add(next_service).ok());
    REQUIRE(rig.run_until_empty());
    for (const CallOutcome& outcome : outcomes) {
        INFO(outcome.status.to_string());
        CHECK(outcome.completions == 1);
        if (bytes == 8) CHECK(outcome.status.ok());
        // The client keeps no copy of a large request that is not idempotent.
        if (bytes != 8) CHECK(outcome.status.effect() == Effect::none);
    }
    CHECK(rig.service.handled == 0);
}

namespace {

// The client of a server that announces its end and keeps running.
struct Stays {
    SimRig rig;
    RawPeer raw{rig, "server"};
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    Stays() { raw.answers_pings = true; }
    ~Stays() {
        channel = Channel();
        rig.run_for(1ms);
    }
    void pass(Duration time) {
        for (const TimePoint end = rig.clock->now() + time; rig.clock->now() < end;) raw.wait(5ms);
    }
    void say_ended() {
        rpc::SessionGrantFrame grant;
        grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::ended);
        REQUIRE(raw.send_as_is(frame_of(grant)));
    }
};

}  // namespace

TEST_CASE("calls that waited for a slot when their server began to end fail a second later") {
    const std::size_t bytes = GENERATE(8u, 1000u);
    Stays rig;
    const std::vector<std::byte> body(bytes);
    std::array<CallOutcome, 70> outcomes;
    for (CallOutcome& outcome : outcomes) {
        rig.channel.call(echo_method, body, {.timeout = 60s}, outcome.done());
    }
    rig.pass(500ms);
    REQUIRE(rig.raw.take().size() < outcomes.size());
    rig.say_ended();
    rig.pass(900ms);
    CHECK(outcomes.back().completions == 0);
    rig.pass(200ms);
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        CHECK(outcome.status.code() == Code::unavailable);
        CHECK(outcome.status.effect() == Effect::none);
    }
}

TEST_CASE("each call to an ending server waits a full second for the next server") {
    Stays rig;
    std::array<CallOutcome, 3> outcomes;
    const auto call = [&](CallOutcome& outcome, Duration timeout) {
        rig.channel.call(echo_method, {}, {.timeout = timeout}, outcome.done());
    };
    call(outcomes[0], 60s);
    rig.pass(20ms);
    rig.say_ended();
    rig.pass(900ms);
    call(outcomes[1], 60s);
    call(outcomes[2], 500ms);
    rig.pass(200ms);
    CHECK(outcomes[0].completions == 1);
    CHECK(outcomes[1].completions == 0);
    rig.pass(400ms);
    CHECK(outcomes[1].completions == 0);
    REQUIRE(outcomes[2].completions == 1);
    CHECK(outcomes[2].status.code() == Code::deadline_exceeded);
    rig.pass(500ms);
    for (const CallOutcome& outcome : outcomes) {
        REQUIRE(outcome.completions == 1);
        CHECK(outcome.status.effect() == Effect::none);
    }
    CHECK(outcomes[1].status.code() == Code::unavailable);
}

}  // namespace rpc_drain
