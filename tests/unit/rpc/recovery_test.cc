// After a lost connection: detection of silent peers, and the effect of calls that may have run.
#include "rpc/channel_impl.h"
#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("recovery: a server that is silent after its session was resumed is detected") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome held;
    lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s}, held.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
    lost.lose_connection();
    REQUIRE(lost.rig.run_until([&] { return lost.calls.counters().resumed == 1; }));
    lost.rig.run_for(100ms);
    // The server stalls: its context turns no more.
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

TEST_CASE("recovery: a stall of the client does not end its attempts to reconnect") {
    for (const Duration before : std::initializer_list<Duration>{0us, 10us, 20ms, 20010us, 100ms}) {
        INFO("stalls " << before.count() << " ns after the loss");
        Lost lost;
        lost.service.hold = true;
        CallOutcome held;
        lost.channel.call(echo_method, as_bytes("x"), {.timeout = 60s}, held.done());
        REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
        lost.lose_connection();
        lost.rig.run_for(before);
        lost.rig.clock->advance(1500ms);
        lost.rig.run_for(200ms);
        CHECK(held.completions == 0);
        lost.service.held[0].reply({});
        lost.service.held.clear();
        REQUIRE(lost.rig.run_until([&] { return held.completions == 1; }));
        CHECK(held.status.ok());
    }
}

TEST_CASE("recovery: an idempotent call that ran never ends with effect none") {
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
    SECTION("when its body was exposed for the connection that is lost") {
        run_with(200'000);
        lose_the_reply();
        REQUIRE(lost.run_until_empty());
        CHECK(outcome.status.code() == Code::unavailable);
    }
    SECTION("when the server drains before the retry arrives") {
        run_with(1);
        lose_the_reply();
        node_of(lost.server).server.drain();
        REQUIRE(lost.run_until_empty());
        CHECK(outcome.status.code() == Code::unavailable);
    }
    SECTION("when the next server lacks the method") {
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

TEST_CASE("recovery: a reply that crosses the query for its call completes the call once") {
    for (const bool idempotent : {true, false}) {
        Lost lost;
        lost.warm_up();
        lost.service.hold = true;
        CallOutcome outcome, next;
        lost.channel.call(echo_method, as_bytes("x"), {.idempotent = idempotent}, outcome.done());
        REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 1; }));
        lost.lose_connection();
        // The client has not received the grant yet, so it sends no query.
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
        CHECK(node_of(lost.named).context.counters().malformed_peers == 0);
    }
}

TEST_CASE("recovery: a call ends with RESOURCE_EXHAUSTED when the server has no free session") {
    Echo service;
    SimRig rig;
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
    // Sessions in use are not evicted, whether their clients are connected or not.
    Runtime& last = rig.add("");
    Channel channel = last.connect("sim://server").value();
    for (CallOutcome& outcome : refused) channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return node_of(last).client.in_flight() == 0; }));
    for (const CallOutcome& outcome : refused) {
        CHECK(outcome.status.code() == Code::resource_exhausted);
        CHECK(outcome.status.effect() == Effect::none);
    }
    CHECK(service.handled == most);
    CHECK(node_of(server).context.counters().malformed_peers == 0);
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

TEST_CASE("recovery: calls of a connection that is lost before the grant are sent again") {
    const int grants_lost = GENERATE(0, 1);
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.grants = false;
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    std::vector<CallOutcome> outcomes(20);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        // Some are too large to be kept for a retry; others use a rendezvous.
        const std::vector<std::byte> body(i % 3 == 0 ? 1 : i % 3 == 1 ? 4000 : 300'000);
        channel.call(echo_method, body, {}, outcomes[i].done());
    }
    const auto lose = [&] {
        node_of(client).context.drop_connection(
            *core::Context::find(rpc::ChannelImpl::of(channel)->peer()),
            fail(Code::unavailable, "cut by the test"));
    };
    raw.wait();
    REQUIRE(raw.take_about_sessions().size() == 1);
    CHECK(raw.take().empty());  // No request was sent.
    if (grants_lost == 1) {
        rpc::SessionGrantFrame grant;
        grant.slots = grant.window = rpc::initial_slots;
        REQUIRE(raw.send_as_is(frame_of(grant)));
    }
    lose();
    raw.grants = true;
    for (int i = 0; i < 10; ++i) raw.wait(10ms);
    // A new session: the server may or may not have the first.
    const std::vector<Frame> again = raw.take_about_sessions();
    REQUIRE(again.size() == 1);
    CHECK(head_of(again[0]).flags == 0);
    const std::vector<Frame> requests = raw.take();
    CHECK(requests.size() == outcomes.size());
    for (const CallOutcome& one : outcomes) CHECK(one.completions == 0);
    channel = Channel();
    rig.run_for(1us);
}

TEST_CASE("recovery: a one-way cut fails calls within 3 s although the server still sends") {
    // The transport itself would detect the cut much later.
    Echo service;
    SimRig rig(1, {.link = {.give_up_after = 20s}, .connect_timeout = 2s});
    service.hold = true;
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    Runtime& client = rig.add("client");
    Channel channel = client.connect("sim://server").value();
    CallOutcome held, lost;
    channel.call(echo_method, as_bytes("held"), {.timeout = 60s}, held.done());
    REQUIRE(rig.run_until([&] { return service.held.size() == 1; }));
    // The server's pings do not count as answers to those of the client.
    const int offset = GENERATE(0, 100, 250, 399);
    rig.run_for(offset * 1ms);
    rig.world->cut("client", "server");
    const TimePoint since = rig.clock->now();
    channel.call(echo_method, as_bytes("lost"), {.timeout = 60s}, lost.done());
    REQUIRE(rig.run_until([&] { return held.completions == 1 && lost.completions == 1; }));
    INFO("after " << (rig.clock->now() - since) / 1ms << " ms");
    CHECK(rig.clock->now() - since < 3010ms);
    CHECK(held.status.code() == Code::unavailable);
    CHECK(held.status.effect() == Effect::unknown);
    CHECK(lost.status.code() == Code::unavailable);
    service.held.clear();
    rig.run_for(1ms);
}

TEST_CASE("recovery: a peer with much queued data still answers pings in time") {
    // Sending the queue takes longer than the limit for a silent peer.
    Echo service;
    SimRig rig(1, {.connection_bytes_max = 128 * 1024});
    service.hold = true;
    REQUIRE(rig.add("server").add(service).ok());
    Runtime& client = rig.add("client");
    Channel channel = client.connect("sim://server").value();
    weft::sim::Link slow;
    slow.bytes_per_second = 256'000;
    rig.world->set_link("server", "client", slow);
    std::vector<CallOutcome> outcomes(40);
    const std::vector<std::byte> body(30'000);
    for (CallOutcome& one : outcomes) channel.call(echo_method, body, {.timeout = 60s}, one.done());
    REQUIRE(rig.run_until([&] { return service.held.size() == outcomes.size(); }));
    for (Call& call : service.held) call.reply(call.request());
    service.held.clear();
    REQUIRE(rig.run_until([&] { return outcomes.back().completions == 1; }));
    for (const CallOutcome& one : outcomes) CHECK(one.status.ok());
    CHECK(node_of(client).context.counters().timed_out_peers == 0);
}

TEST_CASE("recovery: calls fail within 3 s when a server ends each connection before its grant") {
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.grants = false;
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    std::vector<CallOutcome> outcomes(5);
    for (CallOutcome& one : outcomes) {
        channel.call(echo_method, {}, {.timeout = 60s, .idempotent = true}, one.done());
    }
    const TimePoint since = rig.clock->now();
    std::size_t connects = 0;
    while (node_of(client).client.in_flight() != 0 && rig.clock->now() - since < 10s) {
        raw.wait(1ms);
        if (raw.take_about_sessions().empty()) continue;
        ++connects;
        raw.close();
    }
    CHECK(rig.clock->now() - since < 3s);
    for (const CallOutcome& one : outcomes) {
        CHECK(one.completions == 1);
        CHECK(one.status.code() == Code::unavailable);
        CHECK(one.status.effect() == Effect::none);
    }
    CHECK(raw.take().empty());  // No request was sent.
    // The attempts last a second; each pause is about twice the one before, from 20 ms on.
    CHECK(connects > 2);
    CHECK(connects <= 10);
    CHECK(node_of(client).client.counters().lost_connections == 1);
}

TEST_CASE("recovery: a call ends with DEADLINE_EXCEEDED when it expires before the grant") {
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.grants = false;
    raw.answers_pings = true;
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, {}, {.timeout = 1s}, outcome.done());
    const TimePoint since = rig.clock->now();
    while (outcome.completions == 0 && rig.clock->now() - since < 10s) raw.wait(1ms);
    CHECK(rig.clock->now() - since < 1010ms);
    CHECK(raw.take_about_sessions().size() == 1);
    CHECK_FALSE(raw.lost);
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.code() == Code::deadline_exceeded);
    CHECK(outcome.status.effect() == Effect::none);
}

TEST_CASE("recovery: the pauses start anew when a session is granted after lost connections") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, {}, {.timeout = 60s, .idempotent = true}, outcome.done());
    // The time until the session frame of the next connection.
    const auto next = [&] {
        const TimePoint since = rig.clock->now();
        while (raw.take_about_sessions().empty() && rig.clock->now() - since < 10s) raw.wait(1ms);
        return rig.clock->now() - since;
    };
    raw.grants = false;
    next();
    for (int lost = 0; lost < 3; ++lost) {
        raw.close();
        next();
    }
    raw.close();
    CHECK(next() > 60ms);  // After 20, 40 and 80 ms, give or take a half.
    raw.close();
    raw.grants = true;
    next();
    raw.wait(10ms);
    REQUIRE(outcome.completions == 0);
    raw.close();
    CHECK(next() < 40ms);
    channel = Channel();
    rig.run_for(1ms);
}

TEST_CASE("recovery: the final ping of a peer is answered as final when another ping follows") {
    SimRig rig;
    rig.add("server");
    RawPeer raw(rig, "raw");
    raw.connect_bare("server");
    rig.world->refuse(0.5);
    for (int round = 0; round < 100; ++round) {
        for (const std::uint16_t mark : {core::final_ping, std::uint16_t{0}}) {
            const core::FrameHead ping{core::FrameKind::ping, 0, mark, sizeof ping};
            const ByteView frame(reinterpret_cast<const std::byte*>(&ping), sizeof ping);
            while (!raw.send_as_is(frame)) raw.wait();
        }
        raw.wait(1ms);
        bool has_all = false;
        for (const Frame& frame : raw.take()) {
            const core::FrameHead head = head_of(frame);
            has_all |= head.kind == core::FrameKind::pong && head.aux == core::final_ping;
        }
        CHECK(has_all);
    }
}

// Sends the notice that the server ends in order.
static void say_ended(RawPeer& raw) {
    rpc::SessionGrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::ended);
    REQUIRE(raw.send_as_is(frame_of(grant)));
}

TEST_CASE("recovery: calls that an ending server has not answered go to the next server") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    CallOutcome small, large, later;
    const std::vector<std::byte> body(1000);
    channel.call(echo_method, as_bytes("small"), {}, small.done());
    channel.call(echo_method, body, {}, large.done());
    for (int i = 0; i < 3; ++i) raw.wait();
    const std::vector<Frame> first = raw.take();
    REQUIRE(first.size() == 2);
    raw.take_about_sessions();
    say_ended(raw);
    raw.wait();
    // The client keeps no copy of the large request for a retry.
    REQUIRE(large.completions == 1);
    CHECK(large.status.code() == Code::unavailable);
    CHECK(large.status.effect() == Effect::none);
    channel.call(echo_method, as_bytes("later"), {}, later.done());
    for (int i = 0; i < 3; ++i) raw.wait();
    CHECK(raw.take().empty());
    raw.close();
    for (int i = 0; i < 10; ++i) raw.wait(10ms);
    const std::vector<Frame> sessions = raw.take_about_sessions();
    REQUIRE(sessions.size() == 1);
    CHECK(head_of(sessions[0]).flags == 0);
    CHECK(raw.take().size() == 2);
    CHECK(small.completions + later.completions == 0);
    CHECK(node_of(client).client.in_flight() == 2);
    channel = Channel();
    rig.run_for(1us);
}

TEST_CASE("recovery: calls to a server that takes long to end fail within 3 s with effect none") {
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.answers_pings = true;
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    CallOutcome first, later;
    channel.call(echo_method, {}, {.timeout = 60s}, first.done());
    for (int i = 0; i < 3; ++i) raw.wait();
    say_ended(raw);
    for (int i = 0; i < 30; ++i) raw.wait(100ms);
    REQUIRE(first.completions == 1);
    channel.call(echo_method, {}, {.timeout = 60s}, later.done());
    for (int i = 0; i < 30; ++i) raw.wait(100ms);
    REQUIRE(later.completions == 1);
    for (const CallOutcome* one : {&first, &later}) {
        CHECK(one->status.code() == Code::unavailable);
        CHECK(one->status.effect() == Effect::none);
    }
    CHECK_FALSE(raw.lost);
}

TEST_CASE("recovery: a queried call keeps effect unknown unless the ending server answers") {
    const bool is_told = GENERATE(true, false);
    SimRig rig;
    RawPeer raw(rig, "server");
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    CallOutcome outcome;
    const std::vector<std::byte> body(1000);
    channel.call(echo_method, body, {}, outcome.done());
    for (int i = 0; i < 3; ++i) raw.wait();
    raw.take_about_sessions();
    node_of(client).context.drop_connection(
        *core::Context::find(rpc::ChannelImpl::of(channel)->peer()),
        fail(Code::unavailable, "cut by the test"));
    const std::vector<Frame> queries = raw.resume();
    REQUIRE(queries.size() == 1);
    say_ended(raw);
    raw.wait();
    CHECK(outcome.completions == 0);
    if (is_told) {
        rpc::CallStatusFrame call_status;
        call_status.head.aux = static_cast<std::uint16_t>(rpc::CallStatus::not_received);
        call_status.call = base::load<rpc::CallQueryFrame>(queries[0].data()).call;
        REQUIRE(raw.send_as_is(frame_of(call_status)));
    } else {
        raw.close();
    }
    raw.wait();
    REQUIRE(outcome.completions == 1);
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == (is_told ? Effect::none : Effect::unknown));
}

TEST_CASE("recovery: an ending server begins no request and answers queries") {
    Echo service;
    SimRig rig;
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    RawPeer raw(rig), later(rig);
    raw.connect("server");
    raw.take_about_sessions();
    const auto request = [](std::uint32_t sequence) {
        Frame frame(sizeof(rpc::RequestHeader) + 8);
        rpc::store_request(frame.data(), frame.size(), 0, {0, sequence}, 500'000, echo_method.hash);
        return frame;
    };
    REQUIRE(raw.send_as_is(request(1)));
    raw.wait();
    CHECK(service.handled == 1);
    CHECK(raw.take().size() == 1);
    const auto drain = [&] {
        std::uint32_t left = 1;
        node_of(server).context.post([&] {
            impl_of(server).begin_drain();
            left = impl_of(server).left_to_drain().first;
        });
        raw.wait();
        CHECK(left == 0);
    };
    drain();
    const std::vector<Frame> ended = raw.take_about_sessions();
    REQUIRE(ended.size() == 1);
    CHECK(head_of(ended[0]).aux == static_cast<std::uint16_t>(rpc::SessionReply::ended));
    REQUIRE(raw.send_as_is(request(2)));
    raw.wait();
    CHECK(raw.take().empty());
    rpc::CallQueryFrame query;
    query.call = {0, 2};
    REQUIRE(raw.send_as_is(frame_of(query)));
    raw.wait();
    const std::vector<Frame> call_status = raw.take_about_sessions();
    REQUIRE(call_status.size() == 1);
    CHECK(head_of(call_status[0]).aux == static_cast<std::uint16_t>(rpc::CallStatus::not_received));
    // The end is announced once to each client, also to one that connects later.
    later.connect("server");
    drain();
    CHECK(raw.take_about_sessions().empty());
    later.wait();
    const std::vector<Frame> late = later.take_about_sessions();
    REQUIRE(late.size() == 2);
    CHECK(head_of(late[1]).aux == static_cast<std::uint16_t>(rpc::SessionReply::ended));
    CHECK_FALSE(raw.lost);
    CHECK(service.handled == 1);
}
