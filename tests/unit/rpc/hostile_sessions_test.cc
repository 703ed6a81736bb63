// Requests, call queries and sessions that no client of weft sends, to a whole server.
#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;

TEST_CASE("hostile sessions: a peer with calls that never end runs out of slots") {
    Victim victim;
    RawPeer raw(victim.rig);
    raw.connect("server");
    const auto held_in = [&](std::uint32_t slot) {
        Frame held = victim.request(echo::v1::EchoMethods::Held.id, {}, {slot, 1});
        base::store(held.data() + offsetof(rpc::RequestHeader, remaining_us),
                    rpc::remaining_unbounded);
        return held;
    };
    for (std::uint32_t slot = 0; slot < rpc::slots_max; ++slot) {
        while (!raw.send(held_in(slot))) {
            REQUIRE_FALSE(raw.lost);
            raw.wait(20us);
        }
    }
    raw.wait();
    REQUIRE_FALSE(raw.lost);
    CHECK(node_of(victim.server).server.executing() == rpc::slots_max);
    victim.check_serves();
    check_refused(victim, raw, held_in(rpc::slots_max));
}

TEST_CASE("hostile sessions: a request without a session or out of order costs its connection") {
    Victim victim;
    RawPeer raw(victim.rig);
    const Frame request = victim.request(echo::v1::EchoMethods::Now.id, "x");
    const auto numbered = [&](std::uint32_t slot, std::uint32_t sequence) {
        Frame frame = request;
        base::store(frame.data() + offsetof(rpc::RequestHeader, call),
                    rpc::WireCallId{slot, sequence});
        return frame;
    };
    const auto costs = [&](const Frame& frame) {
        const auto before = node_of(victim.server).context.counters().malformed_peers;
        raw.send_as_is(frame);
        raw.wait();
        victim.check_serves();
        return raw.lost && node_of(victim.server).context.counters().malformed_peers == before + 1;
    };
    rpc::CancelHeader cancel;
    rpc::CallQueryFrame query;
    for (const Frame& frame :
         {request, frame_of(cancel), frame_of(query), frame_of(rpc::SessionEndFrame())}) {
        raw.connect_bare("server");
        CHECK(costs(frame));
    }
    for (const auto& [slot, sequence] :
         {std::pair{0u, 0u}, {0u, 2u}, {0u, ~0u}, {rpc::slots_max, 1u}, {~0u, 1u}}) {
        raw.connect("server");
        CHECK(costs(numbered(slot, sequence)));
    }
    raw.connect("server");
    CHECK_FALSE(costs(numbered(5, 1)));
    CHECK(costs(numbered(5, 1)));
}

TEST_CASE("hostile sessions: invalid sessions and call queries cost their connection") {
    Victim victim;
    RawPeer raw(victim.rig), other(victim.rig);
    const auto session = [](rpc::SessionId id, bool resumes) {
        rpc::SessionFrame frame;
        frame.head.flags = resumes ? rpc::resume_flag : 0;
        frame.id = id;
        return frame_of(frame);
    };
    const auto costs = [&](RawPeer& by, const Frame& frame) {
        by.send_as_is(frame);
        by.wait();
        victim.check_serves();
        return by.lost;
    };
    other.connect("server");
    raw.connect("server");
    CHECK(costs(raw, session({1, 2}, false)));  // A second session on one connection.
    raw.connect_bare("server");
    CHECK(costs(raw, session(other.session, false)));  // A session that exists.
    raw.connect_bare("server");
    CHECK_FALSE(costs(raw, session({1, 2}, true)));  // An unknown session.
    const std::vector<Frame> about_sessions = raw.take_about_sessions();
    REQUIRE_FALSE(about_sessions.empty());
    CHECK(head_of(about_sessions.back()).aux ==
          static_cast<std::uint16_t>(rpc::SessionReply::expired));
    // The end may have crossed that reply.
    CHECK_FALSE(costs(raw, frame_of(rpc::SessionEndFrame())));
    CHECK(costs(raw, frame_of(rpc::SessionEndFrame())));
    for (const rpc::WireCallId call :
         {rpc::WireCallId{rpc::slots_max, 1}, {0, 2}, {0, ~0u}, {0, 0}, {5, 0}}) {
        raw.connect("server");
        rpc::CallQueryFrame query;
        query.call = call;
        CHECK(costs(raw, frame_of(query)));
    }
    CHECK_FALSE(other.lost);
}

TEST_CASE("hostile sessions: a second session costs the connection when the first has ended") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const bool resumes : {false, true}) {
        raw.connect("server");
        REQUIRE(raw.send_as_is(frame_of(rpc::SessionEndFrame())));
        raw.wait();
        REQUIRE_FALSE(raw.lost);
        rpc::SessionFrame second;
        second.head.flags = resumes ? rpc::resume_flag : 0;
        second.id = {1, victim.rig.random->next()};
        REQUIRE(raw.send_as_is(frame_of(second)));
        raw.wait();
        CHECK(raw.lost);
        CHECK(raw.take_about_sessions().size() == 1);  // The grant of the first session.
    }
    victim.check_serves();
    // The session to resume is unknown, so the peer begins another one on this connection.
    raw.connect_bare("server");
    rpc::SessionFrame unknown;
    unknown.head.flags = rpc::resume_flag;
    unknown.id = {1, 2};
    REQUIRE(raw.send_as_is(frame_of(unknown)));
    REQUIRE(raw.send_as_is(raw.numbers.begin(3, 4)));
    raw.wait();
    CHECK_FALSE(raw.lost);
    const std::vector<Frame> said = raw.take_about_sessions();
    REQUIRE(said.size() == 2);
    CHECK(head_of(said[1]).aux == static_cast<std::uint16_t>(rpc::SessionReply::granted));
}

TEST_CASE("hostile sessions: a session with id 0 costs the connection, begun or resumed") {
    Victim victim;
    RawPeer raw(victim.rig);
    for (const std::uint8_t flags : {std::uint8_t{0}, rpc::resume_flag}) {
        raw.connect_bare("server");
        rpc::SessionFrame unnamed;
        unnamed.head.flags = flags;
        REQUIRE(raw.send_as_is(frame_of(unnamed)));
        raw.wait();
        CHECK(raw.lost);
        CHECK(raw.take_about_sessions().empty());
    }
    victim.check_serves();
}

TEST_CASE("hostile sessions: a lost session that was in use outlives any number of short ones") {
    Victim victim;
    RawPeer lost(victim.rig), hasty(victim.rig);
    const Frame request = victim.request(echo::v1::EchoMethods::Now.id, "hello");
    const auto use_for = [&](RawPeer& by, Duration time) {
        by.connect("server");
        REQUIRE(by.send(request));
        by.wait(time);
        REQUIRE(by.take().size() == 1);
        by.close();
    };
    use_for(lost, 100ms);
    const TimePoint since = victim.rig.clock->now();
    rpc::Server& server = node_of(victim.server).server;
    for (std::size_t i = 0; i < rpc::ServerSessions::sessions_max + 100; ++i) use_for(hasty, 50us);
    CHECK(server.sessions() == rpc::ServerSessions::sessions_max);
    REQUIRE(victim.rig.clock->now() - since < 10s);
    lost.connect_bare("server");
    lost.take_about_sessions();
    rpc::SessionFrame again;
    again.head.flags = rpc::resume_flag;
    again.id = lost.session;
    REQUIRE(lost.send_as_is(frame_of(again)));
    lost.wait();
    const std::vector<Frame> said = lost.take_about_sessions();
    REQUIRE(said.size() == 1);
    CHECK(head_of(said[0]).aux == static_cast<std::uint16_t>(rpc::SessionReply::resumed));
    victim.check_serves();
}
