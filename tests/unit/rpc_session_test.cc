// Calls outlive their connection: the session of a client and a server, resumed on the next one.
#include "rpc/server_sessions.h"
#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

// The others are kept for handlers' calls.
static constexpr std::size_t slots_of_ours = rpc::slots_max - rpc::ClientSession::nested_slots;

TEST_CASE("session: calls in their handlers are answered over the next connection") {
    Lost lost;
    lost.service.hold = true;
    std::vector<CallOutcome> outcomes(100);
    for (CallOutcome& one : outcomes) lost.channel.call(echo_method, as_bytes("x"), {}, one.done());
    REQUIRE(lost.rig.run_until([&] { return lost.service.held.size() == 100; }));
    lost.lose_connection();
    lost.rig.run_for(1us);
    // Half of them are answered while nobody hears it.
    for (int i = 0; i < 50; ++i)
        lost.service.held[static_cast<std::size_t>(i)].reply(as_bytes("y"));
    REQUIRE(lost.rig.run_until([&] { return lost.calls.counters().resumed == 1; }));
    lost.rig.run_for(1ms);
    CHECK(lost.calls.in_flight() == 50);
    CHECK(lost.served().answered_again == 50);
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

TEST_CASE("session: a request that never came is sent again if it was kept, in its own slot") {
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
    client.node().context.drop_connection(*core::Context::find(channel.impl()->peer()),
                                          fail(Code::unavailable, "cut by the test"));
    const std::vector<Frame> questions = raw.resume();
    REQUIRE(questions.size() == 3);
    CHECK(raw.take().empty());
    for (const Frame& question : questions) {
        REQUIRE(head_of(question).kind == core::FrameKind::ask);
        rpc::ToldFrame told;
        told.head.aux = static_cast<std::uint16_t>(rpc::Standing::never_came);
        told.call = base::load<rpc::AskFrame>(question.data()).call;
        REQUIRE(raw.send_as_is(frame_of(told)));
    }
    for (int i = 0; i < 3; ++i) raw.wait();
    const std::vector<Frame> second = raw.take();
    REQUIRE(second.size() == 2);
    // All the same, but for the time that is left.
    for (std::size_t i : {0, 1}) {
        Frame was = first[i * 2], is = second[i];
        constexpr std::size_t at = offsetof(rpc::RequestHeader, remaining_us);
        std::memset(was.data() + at, 0, 4);
        std::memset(is.data() + at, 0, 4);
        CHECK(was == is);
    }
    CHECK(large.status.code() == Code::unavailable);
    CHECK(large.status.effect() == Effect::none);
    CHECK(client.node().client.in_flight() == 2);
    CHECK(client.node().client.counters().sent_again == 2);
    // The number that never came is the slot's next.
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

TEST_CASE("session: a reply that was too large to keep is lost, and that is said") {
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
    // Of that one nothing is kept: it ran once more.
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

TEST_CASE("session: a server that stays away is given up, what waits for it with no effect") {
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

TEST_CASE("session: a deadline that falls while the server is searched for is UNAVAILABLE") {
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
    // One slot is free: those that wait pass through it one after the other.
    lost.service.hold = false;
    lost.service.held.back().reply({});
    lost.service.held.pop_back();
    REQUIRE(lost.rig.run_until([&] { return order.size() == 6; }));
    CHECK(order == std::vector<int>{7, 6, 3, 3, 1, 0});
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
}

TEST_CASE("session: calls that were given up keep their slots until they are answered") {
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
    CHECK(lost.service.held.size() == slots_of_ours);  // No flood of cancels admits more.
    CHECK(lost.service.held[17].cancelled());
    lost.service.hold = false;
    lost.service.held.clear();
    REQUIRE(lost.run_until_empty());
    CHECK(next.status.ok());
    CHECK(lost.calls.counters().late_replies == slots_of_ours);
    CHECK(lost.peer().interest == 0);
}

TEST_CASE("session: a call that is given up while its connection is lost is cancelled afterwards") {
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

TEST_CASE("session: handlers hear of a client that ends at once, of one that is lost after 3 s") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome outcome;
    lost.channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    SECTION("it ends") {
        lost.channel = Channel();
        lost.rig.run_for(1ms);
        CHECK(lost.service.held[0].cancelled());
        CHECK(lost.server.node().server.sessions() == 0);
    }
    SECTION("it is lost") {
        lost.named.node().context.shutdown(fail(Code::cancelled, "gone without a word"));
        lost.named.node().context.close_endpoints();
        lost.rig.run_for(2900ms);
        CHECK_FALSE(lost.service.held[0].cancelled());
        lost.rig.run_for(200ms);
        CHECK(lost.service.held[0].cancelled());
        lost.rig.run_for(10s);
        CHECK(lost.server.node().server.sessions() == 1);  // Its handler runs.
        lost.service.held.clear();
        lost.rig.run_for(4s);
        CHECK(lost.server.node().server.sessions() == 0);
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

TEST_CASE("session: a server that has forgotten it ends what is in doubt with ABORTED") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Channel channel = rig.add("").connect("sim://server").value();
    core::Context& context = rig.runtimes[0]->node().context;
    CallOutcome once, again;
    channel.call(echo_method, as_bytes("once"), {}, once.done());
    channel.call(echo_method, as_bytes("again"), {.idempotent = true}, again.done());
    raw.wait();
    REQUIRE(raw.take().size() == 2);
    context.drop_connection(*core::Context::find(channel.impl()->peer()),
                            fail(Code::unavailable, "cut by the test"));
    raw.take_about_sessions();
    for (int i = 0; i < 10; ++i) raw.wait(10ms);
    const std::vector<Frame> resumed = raw.take_about_sessions();
    REQUIRE(resumed.size() == 1);
    CHECK(head_of(resumed[0]).flags == rpc::resume_flag);
    rpc::GrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::Verdict::expired);
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    CHECK(once.status.code() == Code::aborted);
    CHECK(once.status.effect() == Effect::unknown);
    CHECK(again.completions == 0);
    CHECK(raw.take().size() == 1);  // It is asked once more, in another session.
    channel = Channel();
    rig.run_for(1us);
    CHECK(again.status.code() == Code::cancelled);
}

TEST_CASE("session: a server without room for another client says so") {
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.grants = false;
    Channel channel = rig.add("").connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    raw.wait();
    rpc::GrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::Verdict::full);
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    CHECK(outcome.status.code() == Code::resource_exhausted);
}

TEST_CASE("session: lies about grants and standings cost the connection") {
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
        return client.node().context.counters().broken_peers;
    };
    std::uint64_t broken = 0;
    using rpc::Verdict;
    for (const auto& [verdict, slots, window] : {std::tuple{Verdict::resumed, 64u, 64u},
                                                 {Verdict::expired, 0u, 0u},
                                                 {Verdict::granted, 0u, 0u},
                                                 {Verdict::granted, 65u, 65u},
                                                 {Verdict::granted, 64u, 65u},
                                                 {Verdict::granted, 2048u, 64u},
                                                 {Verdict(7), 64u, 64u}}) {
        rpc::GrantFrame grant;
        grant.head.aux = static_cast<std::uint16_t>(verdict);
        grant.slots = slots;
        grant.window = window;
        CHECK(costs(frame_of(grant)) == ++broken);
    }
    for (const unsigned standing : {0u, 1u, 2u}) {
        rpc::ToldFrame told;
        told.head.aux = static_cast<std::uint16_t>(standing);
        told.call = {0, 1};
        CHECK(costs(frame_of(told)) == ++broken);
    }
}

TEST_CASE("session: a server keeps a bounded number, and lets the least useful one go") {
    SimRig rig;
    rpc::Server& server = rig.add("server").node().server;
    rpc::ServerSessions sessions(7);
    core::Peer peer;
    std::vector<std::uint64_t> gone;
    const auto begin = [&](std::uint64_t id) {
        rpc::ServerSession* session =
            sessions.begin(server, {id, 1}, [&](rpc::ServerSession& victim) {
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
        sessions.lose(session, TimePoint(connected));
    };
    rpc::ServerCall call;
    lose(12, 2min);
    lose(5, 3s);
    lose(6, 2500ms);
    sessions.lose(*sessions.find({7, 1}), TimePoint(1h));  // No outcome of it is kept.
    lose(8, 1ms, &call);
    lose(9, 40ms);
    lose(10, 1ms);
    sessions.connect(*sessions.find({10, 1}), peer, TimePoint(1s));
    for (std::uint64_t i = 0; i < 5; ++i) REQUIRE(begin(100'000 + i));
    CHECK(gone == std::vector<std::uint64_t>{7, 9, 5, 6, 12});
    CHECK_FALSE(begin(200'000));  // What is left is connected or runs.
    // The time of each connection counts, and not the time between them.
    sessions.lose(*sessions.find({10, 1}), TimePoint(1s + 1ms));
    lose(11, 4ms);
    rpc::ServerSession& ran = *sessions.find({8, 1});
    ran.slot(0).call = nullptr;
    sessions.on_call_over(ran);
    for (std::uint64_t i = 0; i < 3; ++i) REQUIRE(begin(200'000 + i));
    CHECK(std::vector(gone.begin() + 5, gone.end()) == std::vector<std::uint64_t>{8, 10, 11});
    // The pool of slots is bounded as well.
    std::uint32_t slots = 0;
    for (std::uint64_t i = 0; i < 5; ++i) sessions.widen(*sessions.find({i, 1}));
    for (std::uint64_t i = 0; i < 200; ++i) {
        if (rpc::ServerSession* session = sessions.find({i, 1})) {
            sessions.widen(*session);
            slots += session->slots() - rpc::slots_at_first;
        }
    }
    CHECK(slots <= rpc::ServerSessions::slots_pool);
    CHECK(slots > rpc::ServerSessions::slots_pool - rpc::slots_max);
}

TEST_CASE("session: a cancel while it is being resumed is told afterwards") {
    SimRig rig;
    RawPeer raw(rig, "server");
    Channel channel = rig.add("").connect("sim://server").value();
    core::Context& context = rig.runtimes[0]->node().context;
    CallOutcome outcome;
    const OperationId id = channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    raw.wait();
    REQUIRE(raw.take().size() == 1);
    context.drop_connection(*core::Context::find(channel.impl()->peer()),
                            fail(Code::unavailable, "cut by the test"));
    raw.take_about_sessions();
    for (int i = 0; i < 10; ++i) raw.wait(10ms);
    REQUIRE(raw.take_about_sessions().size() == 1);
    channel.cancel_call(id);
    raw.wait();
    CHECK(outcome.status.code() == Code::cancelled);
    CHECK(raw.take().empty());  // The server does not know the session here, maybe not at all.
    rpc::GrantFrame grant;
    grant.head.aux = static_cast<std::uint16_t>(rpc::Verdict::resumed);
    grant.slots = grant.window = rpc::slots_at_first;
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    const std::vector<Frame> asked = raw.take_about_sessions();
    REQUIRE(asked.size() == 1);
    CHECK(head_of(asked[0]).kind == core::FrameKind::ask);
    rpc::ToldFrame told;
    told.head.aux = static_cast<std::uint16_t>(rpc::Standing::executing);
    told.call = {0, 1};
    REQUIRE(raw.send_as_is(frame_of(told)));
    raw.wait();
    const std::vector<Frame> then = raw.take();
    REQUIRE(then.size() == 1);
    CHECK(head_of(then[0]).kind == core::FrameKind::cancel);
}

TEST_CASE("session: what was lent for large requests comes back when the server is given up") {
    Lost lost;
    lost.service.hold = true;
    CallOutcome held;
    lost.channel.call(echo_method, {}, {}, held.done());
    REQUIRE(lost.rig.run_until([&] { return !lost.service.held.empty(); }));
    lost.rig.kill("server");
    const rpc::ClientSession& session = *lost.peer().client_session;
    REQUIRE(lost.rig.run_until([&] { return session.state == rpc::SessionState::searching; }));
    std::vector<CallOutcome> large(4);
    const std::vector<std::byte> body(1 << 20);
    for (CallOutcome& outcome : large) lost.channel.call(echo_method, body, {}, outcome.done());
    REQUIRE(lost.run_until_empty());
    for (const CallOutcome& outcome : large) CHECK(outcome.status.code() == Code::unavailable);
    CHECK(lost.peer().interest == 0);  // Each loan has one.
    lost.service.held.clear();
}
