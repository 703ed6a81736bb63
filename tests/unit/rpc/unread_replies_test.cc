// A client that does not read its replies is dropped when they fill its queue; what is dropped is
// neither dropped again nor used for the next client.
#include "support/hold_server.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace rpc_unread_replies {

// Requests of a method that is not there, one at a time: each is refused before the next is sent.
// Returns how many were sent before the connection was lost; at most `most`.
static int send_refused(Victim& victim, RawPeer& raw, int most) {
    Frame unknown = victim.request(MethodId("none.None/None"), ByteView());
    for (int i = 0; i < most; ++i) {
        if (!raw.send(unknown)) return i;
        victim.rig.run_for(20us);  // The server reads; this peer never does.
    }
    return most;
}

TEST_CASE("unread replies: a grant of a dropped client is closed at no other client") {
    Victim victim;
    int filled = 0;
    {
        RawPeer raw(victim.rig);
        raw.connect("server");
        filled = send_refused(victim, raw, 100'000);
        REQUIRE(filled < 100'000);
    }
    victim.rig.run_for(1s);
    RawPeer raw(victim.rig);
    raw.connect("server");
    // The refusal of the next request finds no room: the client is dropped.
    REQUIRE(send_refused(victim, raw, filled - 1) == filled - 1);
    const RegionRef ref = Victim::rendezvous_ref(raw.incarnation);
    Frame last = victim.rendezvous_request(ref, 4711);
    last[offsetof(rpc::RequestHeader, method)] ^= std::byte{1};
    REQUIRE(raw.send(last));
    victim.rig.run_for(1ms);
    CHECK_FALSE(raw.send(last));
    RawPeer other(victim.rig);
    other.connect("server");
    other.wait(1s);
    for (const Frame& frame : other.take())
        CHECK(head_of(frame).kind != core::FrameKind::bulk_close);
    victim.check_serves();
}

TEST_CASE("unread replies: a client is dropped once by a reply that ends another call of it") {
    HoldServer hold;
    Victim victim;
    REQUIRE(victim.server.add(hold).ok());
    const auto held = [&](std::uint32_t slot) {
        Frame request = victim.request(HoldServer::hold, ByteView(), {slot, 1});
        base::store(request.data() + offsetof(rpc::RequestHeader, remaining_us),
                    std::uint64_t{60'000'000});
        return request;
    };
    const auto send_held = [&](RawPeer& raw) {
        raw.connect("server");
        for (const std::uint32_t slot : {10u, 11u}) REQUIRE(raw.send(held(slot)));
        victim.rig.run_for(1ms);
        REQUIRE(hold.held.size() == 2);
    };
    int filled = 0;
    {
        RawPeer raw(victim.rig);
        send_held(raw);
        filled = send_refused(victim, raw, 100'000);
        REQUIRE(filled < 100'000);
    }
    hold.held.clear();
    victim.rig.run_for(1s);
    RawPeer raw(victim.rig);
    send_held(raw);
    REQUIRE(send_refused(victim, raw, filled - 1) == filled - 1);
    // The notice of the first call owns the second one, which is answered when that is destroyed.
    hold.held[0].on_cancel([second = std::move(hold.held[1])] { (void)second; });
    hold.held[0].reply(as_bytes("late"));
    victim.rig.run_for(1ms);
    CHECK_FALSE(raw.send(held(12)));
    victim.check_serves();
}

}  // namespace rpc_unread_replies
