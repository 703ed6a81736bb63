// Requests, questions and sessions that no client of weft sends, to a whole server.
#include "support/victim.h"

using namespace weft;
using namespace weft::test;
using core::FrameKind;

TEST_CASE("hostile sessions: who has calls held without end runs out of slots") {
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
    CHECK(victim.server.node().server.executing() == rpc::slots_max);
    victim.check_serves();
    check_refused(victim, raw, held_in(rpc::slots_max));
}

TEST_CASE("hostile sessions: a request outside of a session, or not the next of its slot") {
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
        const auto before = victim.server.node().context.counters().broken_peers;
        raw.send_as_is(frame);
        raw.wait();
        victim.check_serves();
        return raw.lost && victim.server.node().context.counters().broken_peers == before + 1;
    };
    rpc::CancelHeader cancel;
    rpc::AskFrame ask;
    for (const Frame& frame :
         {request, frame_of(cancel), frame_of(ask), frame_of(rpc::SessionEndFrame())}) {
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

TEST_CASE("hostile sessions: those that nobody may begin, and questions about what is over") {
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
    CHECK(costs(raw, session({1, 2}, false)));  // A second one on its connection.
    raw.connect_bare("server");
    CHECK(costs(raw, session(other.session, false)));  // One that is there.
    raw.connect_bare("server");
    CHECK_FALSE(costs(raw, session({1, 2}, true)));  // One that nobody knows.
    const std::vector<Frame> told = raw.take_about_sessions();
    REQUIRE_FALSE(told.empty());
    CHECK(head_of(told.back()).aux == static_cast<std::uint16_t>(rpc::Verdict::expired));
    CHECK_FALSE(costs(raw, frame_of(rpc::SessionEndFrame())));  // It crossed that.
    CHECK(costs(raw, frame_of(rpc::SessionEndFrame())));
    for (const rpc::WireCallId call :
         {rpc::WireCallId{rpc::slots_max, 1}, {0, 2}, {0, ~0u}, {0, 0}, {5, 0}}) {
        raw.connect("server");
        rpc::AskFrame ask;
        ask.call = call;
        CHECK(costs(raw, frame_of(ask)));
    }
    CHECK_FALSE(other.lost);
}

TEST_CASE("hostile sessions: sessions that begin and end without pause are few in a turn") {
    Victim victim;
    RawPeer raw(victim.rig);
    raw.connect_bare("server");
    Frame flood;
    for (int i = 0; i < 100; ++i) {
        const Frame begin = raw.numbers.begin(1, victim.rig.random->next());
        const Frame end = frame_of(rpc::SessionEndFrame());
        flood.insert(flood.end(), begin.begin(), begin.end());
        flood.insert(flood.end(), end.begin(), end.end());
    }
    REQUIRE(raw.send_as_is(flood));
    raw.wait();
    const std::vector<Frame> said = raw.take_about_sessions();
    REQUIRE(said.size() == 17);
    CHECK(head_of(said[15]).aux == static_cast<std::uint16_t>(rpc::Verdict::granted));
    CHECK(head_of(said[16]).aux == static_cast<std::uint16_t>(rpc::Verdict::full));
    CHECK(raw.lost);  // It went on.
    // Another one, and the same one later, are served.
    for (int i = 0; i < 40; ++i) {
        raw.connect("server");
        REQUIRE(raw.send_as_is(frame_of(rpc::SessionEndFrame())));
        raw.wait();
        CHECK(raw.take_about_sessions().size() == 1);
    }
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
    rpc::Server& server = victim.server.node().server;
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
    CHECK(head_of(said[0]).aux == static_cast<std::uint16_t>(rpc::Verdict::resumed));
    victim.check_serves();
}
