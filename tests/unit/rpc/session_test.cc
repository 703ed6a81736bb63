// Calls outlive their connection: the session of a client and a server, resumed on the next one.
#include "rpc/channel_impl.h"
#include "rpc/server_sessions.h"
#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

// The other slots are reserved for nested calls.
static constexpr std::size_t slots_of_ours = rpc::slots_max - rpc::ClientSession::nested_slots;

TEST_CASE("session: calls in their handlers are answered over the next connection") {
    Lost lost;
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(100);
    for (CallOutcome& one : outcomes) lost.channel.call(echo_method, as_bytes("x"), {}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 100; }));
    lost.lose_connection();
    lost.rig.run_for(1us);
    // Half of the replies are made while no connection is up.
    for (int i = 0; i < 50; ++i)
        lost.service.held[static_cast<std::size_t>(i)].reply(as_bytes("y"));
    REQUIRE(lost.rig.run_until([&] { return lost.calls.counters().resumed == 1; }));
    lost.rig.run_for(1ms);
    CHECK(lost.calls.in_flight() == 50);
    CHECK(lost.served().replies_resent == 50);
    for (Call& call : lost.service.held) call.reply(as_bytes("z"));
    REQUIRE(lost.run_until_empty());
    for (const CallOutcome& one : outcomes) {
        REQUIRE(one.completions == 1);
        REQUIRE(one.status.ok());
    }
    CHECK(outcomes[0].reply == "y");
    CHECK(outcomes[99].reply == "z");
    CHECK(lost.service.handled == 100);
    CHECK(lost.served().resumed == 1);
    lost.service.held.clear();
}

TEST_CASE("session: a request that was not received is sent again in its slot if it was kept") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    CallOutcome small, large, again;
    const std::vector<std::byte> body(1000);
    channel.call(echo_method, as_bytes("small"), {}, small.done());
    channel.call(echo_method, body, {}, large.done());
    channel.call(echo_method, body, {.idempotent = true}, again.done());
    for (int i = 0; i < 3; ++i) raw.wait();
    const std::vector<Frame> first = raw.take();
    REQUIRE(first.size() == 3);
    node_of(client).context.drop_connection(
        *core::Context::find(rpc::ChannelImpl::of(channel)->peer()),
        fail(Code::unavailable, "cut by the test"));
    const std::vector<Frame> queries = raw.resume();
    REQUIRE(queries.size() == 3);
    CHECK(raw.take().empty());
    for (const Frame& query : queries) {
        REQUIRE(head_of(query).kind == core::FrameKind::call_query);
        rpc::CallStatusFrame call_status;
        call_status.head.aux = static_cast<std::uint16_t>(rpc::CallStatus::not_received);
        call_status.call = base::load<rpc::CallQueryFrame>(query.data()).call;
        REQUIRE(raw.send_as_is(frame_of(call_status)));
    }
    for (int i = 0; i < 3; ++i) raw.wait();
    const std::vector<Frame> second = raw.take();
    REQUIRE(second.size() == 2);
    // Equal to the first requests except for the remaining time.
    for (std::size_t i : {0, 1}) {
        Frame was = first[i * 2], is = second[i];
        constexpr std::size_t at = offsetof(rpc::RequestHeader, remaining_us);
        std::memset(was.data() + at, 0, 4);
        std::memset(is.data() + at, 0, 4);
        CHECK(was == is);
    }
    CHECK(large.status.code() == Code::unavailable);
    CHECK(large.status.effect() == Effect::none);
    CHECK(node_of(client).client.in_flight() == 2);
    CHECK(node_of(client).client.counters().resent == 2);
    // The sequence number that was not received is the slot's next.
    CallOutcome next;
    channel.call(echo_method, {}, {}, next.done());
    for (int i = 0; i < 3; ++i) raw.wait();
    const std::vector<Frame> third = raw.take();
    REQUIRE(third.size() == 1);
    const auto call_of = [](const Frame& frame) {
        return base::load<rpc::RequestHeader>(frame.data()).call;
    };
    CHECK(call_of(third[0]).slot == call_of(first[1]).slot);
    CHECK(call_of(third[0]).sequence == call_of(first[1]).sequence);
    channel = Channel();
    rig.run_for(1us);
    CHECK(next.status.code() == Code::cancelled);
}

TEST_CASE("session: a reply that is too large to keep is lost with effect applied") {
    Lost lost;
    lost.warm_up();
    lost.service.hold = true;
    CallOutcome outcome, idempotent;
    const std::vector<std::byte> body(1000);
    lost.channel.call(echo_method, body, {}, outcome.done());
    lost.channel.call(echo_method, body, {.idempotent = true}, idempotent.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 2; }));
    lost.lose_connection();
    lost.rig.run_for(1us);
    for (Call& call : lost.service.held) call.reply(body);
    lost.service.held.clear();
    lost.service.hold = false;
    REQUIRE(lost.run_until_empty());
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == Effect::applied);
    // No reply of the idempotent call was kept: it ran once more.
    CHECK(idempotent.status.ok());
    CHECK(lost.service.handled == 3);
}

TEST_CASE("session: a failure is kept with its text") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    lost.lose_connection();
    lost.rig.run_for(1us);
    const std::string kept(rpc::ServerSession::kept_bytes_max - 1, 'n');
    lost.service.held[0].fail(rejected(Code::not_found, kept + "ü" + std::string(500, 'n')));
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(outcome.status.code() == Code::not_found);
    CHECK(outcome.status.effect() == Effect::none);
    CHECK(outcome.status.text() == kept);
}

TEST_CASE("session: after a restart only idempotent calls run again") {
    Echo second;
    Lost lost;
    lost.service.hold = true;
    CallOutcome once, again, large;
    lost.channel.call(echo_method, as_bytes("once"), {}, once.done());
    lost.channel.call(echo_method, as_bytes("again"), {.idempotent = true}, again.done());
    const std::vector<std::byte> body(5000);
    lost.channel.call(echo_method, body, {.idempotent = true}, large.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 3; }));
    lost.rig.kill("server");
    REQUIRE(lost.rig.add("server").add(second).ok());
    REQUIRE(lost.run_until_empty());
    CHECK(once.status.code() == Code::unavailable);
    CHECK(once.status.effect() == Effect::unknown);
    CHECK(again.status.ok());
    CHECK(large.status.ok());
    CHECK(large.reply.size() == 5000);
    CHECK(second.handled == 2);
    lost.service.held.clear();
}

TEST_CASE("session: calls fail when the server stays down, waiting calls with effect none") {
    Lost lost;
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(slots_of_ours + 10);
    for (CallOutcome& one : outcomes) lost.channel.call(echo_method, {}, {}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == slots_of_ours; }));
    const TimePoint before = lost.rig.clock->now();
    lost.rig.kill("server");
    REQUIRE(lost.run_until_empty());
    CHECK(lost.rig.clock->now() - before <= 3s);
    for (std::size_t i = 0; i < outcomes.size(); ++i) {
        REQUIRE(outcomes[i].status.code() == Code::unavailable);
        REQUIRE(outcomes[i].status.effect() ==
                (i < slots_of_ours ? Effect::unknown : Effect::none));
    }
    lost.service.held.clear();
}

TEST_CASE("session: a call that expires while the client reconnects ends with UNAVAILABLE") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, {}, {.timeout = 200ms}, outcome.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    lost.rig.kill("server");
    REQUIRE(lost.run_until_empty(300ms));
    CHECK(outcome.status.code() == Code::unavailable);
    CHECK(outcome.status.effect() == Effect::unknown);
    lost.service.held.clear();
}

TEST_CASE("session: more calls than slots wait, the highest priority first") {
    Lost lost;
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(slots_of_ours);
    for (CallOutcome& one : outcomes) lost.channel.call(echo_method, {}, {}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == slots_of_ours; }));
    std::vector<int> order;
    for (const int priority : {0, 3, 7, 6, 1, 3}) {
        lost.channel.call(echo_method, {}, {.priority = static_cast<std::uint8_t>(priority)},
                          [&order, priority](const Status& status, ByteView) {
                              REQUIRE(status.ok());
                              order.push_back(priority);
                          });
    }
    CHECK(rpc::Client::waiting(lost.peer()) == 6);
    // One slot is free: the waiting calls use it one after the other.
    lost.service.hold = false;
    lost.service.held.back().reply({});
    lost.service.held.pop_back();
    REQUIRE(lost.rig.run_until([&] { return order.size() == 6; }));
    CHECK(order == std::vector<int>{7, 6, 3, 3, 1, 0});
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
}

TEST_CASE("session: cancelled calls keep their slots until the server has replied") {
    Lost lost;
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(slots_of_ours);
    std::vector<OperationId> ids;
    for (CallOutcome& one : outcomes)
        ids.push_back(lost.channel.call(echo_method, {}, {}, one.done()));
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == slots_of_ours; }));
    for (const OperationId id : ids) lost.channel.cancel_call(id);
    REQUIRE(lost.run_until_empty());
    CallOutcome next;
    lost.channel.call(echo_method, {}, {.timeout = 1s}, next.done());
    lost.rig.run_for(100ms);
    CHECK(next.completions == 0);
    CHECK(lost.service.held.size() == slots_of_ours);  // Cancels do not admit more calls.
    CHECK(lost.service.held[17].cancelled());
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(next.status.ok());
    CHECK(lost.calls.counters().late_replies == slots_of_ours);
    CHECK(lost.peer().interest == 0);
}

TEST_CASE("session: a cancel made while the connection is lost is sent after the resumption") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome given_up, kept;
    const OperationId id = lost.channel.call(echo_method, {}, {}, given_up.done());
    lost.channel.call(echo_method, {}, {}, kept.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 2; }));
    lost.lose_connection();
    lost.channel.cancel_call(id);
    REQUIRE(lost.rig.run_until([&] { return lost.calls.counters().resumed == 1; }));
    lost.rig.run_for(1ms);
    CHECK(given_up.status.code() == Code::cancelled);
    CHECK(lost.service.held[0].cancelled());
    CHECK_FALSE(lost.service.held[1].cancelled());
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(lost.peer().interest == 0);
}

TEST_CASE("session: handlers are cancelled at once when a client ends, 3 s after it is lost") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    SECTION("the client ends") {
        lost.channel = Channel();
        lost.rig.run_for(1ms);
        CHECK(lost.service.held[0].cancelled());
        CHECK(node_of(lost.server).server.sessions() == 0);
    }
    SECTION("the client is lost") {
        node_of(lost.named).context.shutdown(fail(Code::cancelled, "gone without a word"));
        node_of(lost.named).context.close_endpoints();
        lost.rig.run_for(2900ms);
        CHECK_FALSE(lost.service.held[0].cancelled());
        lost.rig.run_for(200ms);
        CHECK(lost.service.held[0].cancelled());
        lost.rig.run_for(10s);
        CHECK(node_of(lost.server).server.sessions() == 1);  // Its handler still runs.
        lost.service.held.clear();
        lost.rig.run_for(4s);
        CHECK(node_of(lost.server).server.sessions() == 0);
    }
    lost.service.held.clear();
}

TEST_CASE("session: a connection that is cut again and again loses no call and runs none twice") {
    Lost lost;
    std::vector<CallOutcome> outcomes(2000);
    std::size_t made = 0;
    while (made < outcomes.size()) {
        for (int i = 0; i < 20; ++i) {
            lost.channel.call(echo_method, as_bytes("x"), {}, outcomes[made++].done());
        }
        lost.rig.run_for(Duration(lost.rig.random->next() % 5000));
        if (lost.peer().state == core::PeerState::up) lost.lose_connection();
        lost.rig.run_for(Duration(lost.rig.random->next() % 60'000'000));
    }
    REQUIRE(lost.run_until_empty());
    for (const CallOutcome& one : outcomes) {
        REQUIRE(one.completions == 1);
        INFO(one.status.to_string());
        REQUIRE(one.status.ok());
    }
    CHECK(lost.service.handled == outcomes.size());
}

TEST_CASE("session: calls that may have run end with ABORTED when the session has expired") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Channel channel = rig.add("").connect("sim://server").value();
    core::Context& context = node_of(*rig.runtimes[0]).context;
    CallOutcome once, again;
    channel.call(echo_method, as_bytes("once"), {}, once.done());
    channel.call(echo_method, as_bytes("again"), {.idempotent = true}, again.done());
    raw.wait();
    REQUIRE(raw.take().size() == 2);
    context.drop_connection(*core::Context::find(rpc::ChannelImpl::of(channel)->peer()),
                            fail(Code::unavailable, "cut by the test"));
    raw.take_about_sessions();
    for (int i = 0; i < 10; ++i) raw.wait(10ms);
    const std::vector<Frame> resumed = raw.take_about_sessions();
    REQUIRE(resumed.size() == 1);
    CHECK(head_of(resumed[0]).flags == rpc::resume_flag);
    rpc::SessionGrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::expired);
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    CHECK(once.status.code() == Code::aborted);
    CHECK(once.status.effect() == Effect::unknown);
    CHECK(again.completions == 0);
    CHECK(raw.take().size() == 1);  // The idempotent call is sent once more, in another session.
    channel = Channel();
    rig.run_for(1us);
    CHECK(again.status.code() == Code::cancelled);
}

TEST_CASE("session: a call fails with RESOURCE_EXHAUSTED when the server has no session left") {
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.grants = false;
    Channel channel = rig.add("").connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    raw.wait();
    rpc::SessionGrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::full);
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    CHECK(outcome.status.code() == Code::resource_exhausted);
    CHECK(rpc::ChannelImpl::of(channel)->peer().at->attempt.failed_at != TimePoint::min());
}

TEST_CASE("session: an invalid grant or call status closes the connection") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    const auto costs = [&](const Frame& lie) {
        CallOutcome outcome;
        channel.call(echo_method, as_bytes("x"), {.timeout = 50ms}, outcome.done());
        raw.wait(40ms);
        REQUIRE_FALSE(raw.lost);
        raw.send_as_is(lie);
        raw.wait(2s);
        REQUIRE(outcome.completions == 1);
        return node_of(client).context.counters().malformed_peers;
    };
    std::uint64_t broken = 0;
    using rpc::SessionReply;
    for (const auto& [session_reply, slots, window] : {std::tuple{SessionReply::resumed, 64u, 64u},
                                                       {SessionReply::expired, 0u, 0u},
                                                       {SessionReply::granted, 0u, 0u},
                                                       {SessionReply::granted, 65u, 65u},
                                                       {SessionReply::granted, 64u, 65u},
                                                       {SessionReply::granted, 2048u, 64u},
                                                       {SessionReply(7), 64u, 64u}}) {
        rpc::SessionGrantFrame grant;
        grant.head.aux = static_cast<std::uint16_t>(session_reply);
        grant.slots = slots;
        grant.window = window;
        CHECK(costs(frame_of(grant)) == ++broken);
    }
    for (const unsigned aux : {0u, 1u, 2u}) {
        rpc::CallStatusFrame call_status;
        call_status.head.aux = static_cast<std::uint16_t>(aux);
        call_status.call = {0, 1};
        CHECK(costs(frame_of(call_status)) == ++broken);
    }
}

TEST_CASE("session: a server bounds its sessions and evicts the least useful one") {
    struct Owner final : rpc::SessionOwner {
        void on_time(rpc::ServerSession&, TimePoint) override {}
    } owner;
    rpc::ServerSessions sessions(7, 0);
    core::Peer peer;
    std::vector<std::uint64_t> gone;
    const auto begin = [&](std::uint64_t id) {
        rpc::ServerSession* session =
            sessions.begin(owner, {id, 1}, [&](rpc::ServerSession& victim) {
                gone.push_back(victim.id.high);
                sessions.erase(victim);
            });
        if (session) sessions.connect(*session, peer, TimePoint());
        return session != nullptr;
    };
    for (std::uint64_t i = 0; i < rpc::ServerSessions::sessions_max; ++i) REQUIRE(begin(i));
    CHECK_FALSE(begin(100'000));  // All are connected.
    const auto lose = [&](std::uint64_t id, Duration connected, rpc::ServerCall* call = nullptr) {
        rpc::ServerSession& session = *sessions.find({id, 1});
        session.slot(0).sequence = 1;
        session.slot(0).call = call;
        sessions.disconnect(session, TimePoint(connected));
    };
    rpc::ServerCall call;
    lose(12, 2min);
    lose(5, 3s);
    lose(6, 2500ms);
    sessions.disconnect(*sessions.find({7, 1}), TimePoint(1h));  // No outcome of it is kept.
    lose(8, 1ms, &call);
    lose(9, 40ms);
    lose(10, 1ms);
    sessions.connect(*sessions.find({10, 1}), peer, TimePoint(1s));
    for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(begin(100'000 + i));
    CHECK(gone == std::vector<std::uint64_t>{7, 9, 5, 6, 12});
    CHECK_FALSE(begin(200'000));  // The other sessions are connected or have a running call.
    // The time of each connection counts, and not the time between them.
    sessions.disconnect(*sessions.find({10, 1}), TimePoint(1s + 1ms));
    lose(11, 4ms);
    rpc::ServerSession& ran = *sessions.find({8, 1});
    ran.slot(0).call = nullptr;
    sessions.on_call_done(ran);
    for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(begin(200'000 + i));
    CHECK(std::vector(gone.begin() + 5, gone.end()) == std::vector<std::uint64_t>{8, 10, 11});
    // The pool of slots is bounded as well.
    std::uint32_t slots = 0;
    for (std::uint64_t i = 0; i < 5; ++i) sessions.widen(*sessions.find({i, 1}));
    for (std::uint64_t i = 0; i < 200; ++i) {
        if (rpc::ServerSession* session = sessions.find({i, 1})) {
            sessions.widen(*session);
            slots += session->slots() - rpc::initial_slots;
        }
    }
    CHECK(slots <= rpc::ServerSessions::slots_pool);
    CHECK(slots > rpc::ServerSessions::slots_pool - rpc::slots_max);
}

TEST_CASE("session: a cancel during the resumption is sent after it") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Channel channel = rig.add("").connect("sim://server").value();
    core::Context& context = node_of(*rig.runtimes[0]).context;
    CallOutcome outcome;
    const OperationId id = channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    raw.wait();
    REQUIRE(raw.take().size() == 1);
    context.drop_connection(*core::Context::find(rpc::ChannelImpl::of(channel)->peer()),
                            fail(Code::unavailable, "cut by the test"));
    raw.take_about_sessions();
    for (int i = 0; i < 10; ++i) raw.wait(10ms);
    REQUIRE(raw.take_about_sessions().size() == 1);
    channel.cancel_call(id);
    raw.wait();
    CHECK(outcome.status.code() == Code::cancelled);
    CHECK(raw.take().empty());  // The server has not resumed the session yet, and may not have it.
    rpc::SessionGrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::SessionReply::resumed);
    grant.slots = grant.window = rpc::initial_slots;
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    const std::vector<Frame> queries = raw.take_about_sessions();
    REQUIRE(queries.size() == 1);
    CHECK(head_of(queries[0]).kind == core::FrameKind::call_query);
    rpc::CallStatusFrame call_status;
    call_status.head.aux = static_cast<std::uint16_t>(rpc::CallStatus::executing);
    call_status.call = {0, 1};
    REQUIRE(raw.send_as_is(frame_of(call_status)));
    raw.wait();
    const std::vector<Frame> then = raw.take();
    REQUIRE(then.size() == 1);
    CHECK(head_of(then[0]).kind == core::FrameKind::cancel);
}

TEST_CASE("session: memory of large requests is released when the server is given up") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome held;
    lost.channel.call(echo_method, {}, {}, held.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    lost.rig.kill("server");
    const rpc::ClientSession& session = *rpc::client_session(lost.peer());
    REQUIRE(lost.rig.run_until([&] { return session.state == rpc::SessionState::reconnecting; }));
    std::vector<CallOutcome> large(4);
    const std::vector<std::byte> body(1 << 20);
    for (CallOutcome& outcome : large) lost.channel.call(echo_method, body, {}, outcome.done());
    REQUIRE(lost.run_until_empty());
    for (const CallOutcome& outcome : large) CHECK(outcome.status.code() == Code::unavailable);
    CHECK(lost.peer().interest == 0);  // Each exposed body counts.
    lost.service.held.clear();
}
