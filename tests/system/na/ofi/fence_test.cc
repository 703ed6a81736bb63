// The guarantee of region_fenced in ofi+tcp when libfabric delays what it is called for.
#include <cstring>

#include "support/ofi_faults.h"
#include "support/ofi_process.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

namespace {

// An owner, and a peer that is not turned any more in the middle of 16 puts of 1 MiB each.
class MidPut {
  public:
    MidPut() : peer_(join(client, owner, &incoming)) {}

    void begin() {
        std::vector<na::RmaItem> items(16);
        for (std::uint64_t i = 0; i < items.size(); ++i) {
            na::RmaItem& put = items[i];
            put.kind = na::RmaKind::put;
            put.peer = peer_;
            put.region = 3;
            put.fabric = key_;
            put.offset = i << 20;
            put.local = Bytes(local_).subspan(put.offset, 1 << 20);
            put.cookie = i;
        }
        REQUIRE(client->post(items) == items.size());
        // From the first byte on the client is not turned.
        REQUIRE(turn_until({&client, &owner}, [&] { return !same(owned_, blank_); }));
        turn_for({&owner}, 20ms);
        REQUIRE_FALSE(same(owned_, local_));
    }

    // The guarantee: after region_fenced the memory does not change, whatever the peer does.
    void check_fence() {
        REQUIRE(turn_until({&owner}, [&] { return owner.find(EventKind::region_fenced); }));
        const std::vector<std::byte> then = owned_;
        turn_for({&client, &owner}, 500ms);
        CHECK(same(owned_, then));
        CHECK(owner.count(EventKind::region_fenced) == 1);
    }

    Node owner{"ofi+tcp://127.0.0.1:0"}, client;
    na::PeerId incoming;

  private:
    // One memcmp: a comparison of bytes takes longer with a sanitizer than the time limits allow.
    static bool same(const std::vector<std::byte>& a, const std::vector<std::byte>& b) {
        return std::memcmp(a.data(), b.data(), b.size()) == 0;
    }

    const std::vector<std::byte> blank_ = std::vector<std::byte>(16 << 20);
    std::vector<std::byte> owned_ = blank_;
    std::vector<std::byte> local_ = std::vector<std::byte>(16 << 20, std::byte{7});
    const na::FabricKey key_ = owner->expose({3, 1, 77, owned_, na::Access::read_write}).value();
    na::PeerId peer_;
};

}  // namespace

TEST_CASE("ofi: no write arrives after a fence when libfabric has returned EAGAIN once") {
    MidPut rig;
    {
        const OfiRefuses once(1);
        REQUIRE(rig.owner.send(rig.incoming, "delayed"));
        rig.owner->flush();
    }
    REQUIRE(
        turn_until({&rig.client, &rig.owner}, [&] { return rig.client.find(EventKind::message); }));
    rig.begin();
    rig.owner->close(rig.incoming);
    rig.owner->fence(3, na::Holders::lost);
    rig.check_fence();
}

TEST_CASE("ofi: a fence waits until the connection can be cut") {
    MidPut rig;
    rig.begin();
    {
        const OfiRefuses now;
        rig.owner->close(rig.incoming);  // Not even a bye can be sent.
        rig.owner->fence(3, na::Holders::lost);
        turn_for({&rig.owner}, 300ms);
        CHECK(rig.owner.count(EventKind::region_fenced) == 0);
    }
    rig.check_fence();
}

TEST_CASE("ofi: a fence waits for a lost connection that can't be cut yet") {
    MidPut rig;
    rig.begin();
    {
        const OfiRefuses now;  // Until the owner regards the connection as lost.
        REQUIRE(rig.owner.send(rig.incoming, "refused"));
        rig.owner->flush();
        REQUIRE(turn_until({&rig.owner}, [&] { return rig.owner.find(EventKind::peer_down); }));
        rig.owner->fence(3, na::Holders::lost);
        turn_for({&rig.owner}, 300ms);
        CHECK(rig.owner.count(EventKind::region_fenced) == 0);
    }
    rig.check_fence();
}

TEST_CASE("ofi: a fence does not wait for ever on a connection that accepts no message") {
    MidPut rig;
    rig.begin();
    const OfiRefuses now;
    rig.owner->close(rig.incoming);
    rig.owner->fence(3, na::Holders::lost);
    const TimePoint start = real_now();
    rig.check_fence();
    CHECK(real_now() - start < promised(4s));
}

TEST_CASE("ofi: a fence does not wait for an address that was never connected") {
    MidPut rig;
    const OfiRefuses now;
    const na::PeerId unconnected = rig.owner.connect(rig.owner->address());
    turn_for({&rig.owner}, 20ms);
    rig.owner->close(unconnected);
    rig.owner->fence(3, na::Holders::lost);
    const TimePoint start = real_now();
    REQUIRE(turn_until({&rig.owner}, [&] { return rig.owner.find(EventKind::region_fenced); }));
    CHECK(real_now() - start < promised(500ms));
}

TEST_CASE("ofi: no write arrives after a fence over a connection that the peer re-established") {
    MidPut rig;
    {
        const OfiRefuses now;  // The client receives no bye.
        rig.owner->close(rig.incoming);
    }
    turn_for({&rig.client, &rig.owner}, 400ms);
    CHECK(rig.client.seen.empty());
    rig.begin();
    rig.owner->fence(3, na::Holders::lost);
    rig.check_fence();
}
