// Grants of sessions that arrive late.
#include "support/lost_pair.h"
#include "support/raw_peer.h"

using namespace weft;
using namespace weft::test;

// The client's calls end while it is suspended, after it has announced a session to the server.
TEST_CASE("grant: one that arrives when all calls have ended is no violation of the protocol") {
    SimRig rig;
    RawPeer raw(rig, "server");
    raw.grants = false;
    raw.answers_pings = true;
    Channel channel = rig.add("").connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, {}, {.timeout = 1s}, outcome.done());
    const auto wait_for_announcement = [&] {
        for (int i = 0; i < 100; ++i) {
            if (!raw.take_about_sessions().empty()) return true;
            raw.wait(1ms);
        }
        return false;
    };
    REQUIRE(wait_for_announcement());
    raw.close();  // From here on the client has a limit for the announcement.
    REQUIRE(wait_for_announcement());
    rig.clock->advance(6s);
    rig.run_until_idle();
    CHECK(outcome.status.code() == Code::deadline_exceeded);
    rpc::SessionGrantFrame grant;
    grant.slots = grant.window = rpc::initial_slots;
    REQUIRE(raw.send_as_is(frame_of(grant)));
    raw.wait();
    CHECK_FALSE(raw.lost);
    raw.take();
    CallOutcome next;
    channel.call(echo_method, as_bytes("x"), {}, next.done());
    raw.wait();
    CHECK(raw.take().size() == 1);
    CHECK(raw.take_about_sessions().empty());
    channel = Channel();
    rig.run_for(1ms);
}
