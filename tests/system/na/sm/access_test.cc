#include <algorithm>

#include "support/sm_raw_peer.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

namespace {

constexpr std::size_t region_bytes = 1 << 20;

// A server that exposes one region, and a client with an arena buffer.
struct AccessRig : SmPair {
    Buffer remote = *server.arena->allocate(region_bytes);
    Buffer local = *client.arena->allocate(region_bytes);
    na::Exposure exposure{7, 3, 0x1234567890, remote.bytes(), Access::read_write};

    explicit AccessRig(Access access = Access::read_write) {
        exposure.access = access;
        REQUIRE(server.endpoint->expose(exposure).ok());
        for (std::size_t i = 0; i < region_bytes; ++i) {
            remote.data()[i] = static_cast<std::byte>(i * 7 + (i >> 8));
        }
    }

    na::RmaItem item(na::RmaKind kind) {
        na::RmaItem item;
        item.kind = kind;
        item.peer = at_client;
        item.region = exposure.region;
        item.generation = exposure.generation;
        item.key = exposure.key;
        item.local = local.bytes();
        item.cookie = 99;
        return item;
    }
    Seen run(const na::RmaItem& item) {
        REQUIRE(client.endpoint->post({&item, 1}) == 1);
        return await({&client}, client, EventKind::rma_done);
    }
    bool same() const {
        return std::equal(local.data(), local.data() + region_bytes, remote.data());
    }
};

}  // namespace

TEST_CASE("sm: get and put move bytes while the owner is not polled") {
    AccessRig rig;
    const Seen got = rig.run(rig.item(na::RmaKind::get));
    CHECK(got.event.code == Code::ok);
    CHECK(got.event.cookie == 99);
    CHECK(rig.same());
    std::memset(rig.local.data(), 0x77, region_bytes);
    CHECK(rig.run(rig.item(na::RmaKind::put)).event.code == Code::ok);
    CHECK(rig.same());
}

TEST_CASE("sm: the local side of a transfer may be any memory") {
    AccessRig rig;
    std::vector<std::byte> own(1000);
    na::RmaItem item = rig.item(na::RmaKind::get);
    item.local = own;
    item.offset = 5000;
    CHECK(rig.run(item).event.code == Code::ok);
    CHECK(std::equal(own.begin(), own.end(), rig.remote.data() + 5000));
}

TEST_CASE("sm: every access is validated, and error() names what was wrong") {
    AccessRig rig;
    na::RmaItem item = rig.item(na::RmaKind::put);
    std::memset(rig.local.data(), 0, region_bytes);
    item.local = rig.local.bytes().first(100);
    std::string why;
    Code code = Code::permission_denied;
    SECTION("a stale generation") {
        item.generation = 2;
        why = "stale";
    }
    SECTION("a wrong key") {
        item.key = 1;
        why = "key";
    }
    SECTION("a range that ends one byte too far") {
        item.offset = region_bytes - 99;
        why = "beyond";
    }
    SECTION("an offset that overflows") {
        item.offset = ~std::uint64_t{0} - 10;
        why = "beyond";
    }
    SECTION("a region that was never exposed") {
        item.region = 8;
        why = "stale";
    }
    SECTION("a region beyond the table") {
        item.region = na::regions_max;
        why = "no such";
    }
    SECTION("no bytes") {
        item.local = {};
        why = "0 bytes";
        code = Code::invalid_argument;
    }
    SECTION("more than rma_bytes_max") {
        item.local = Bytes(rig.local.data(), region_bytes + 1);
        why = "rma_bytes_max";
        code = Code::invalid_argument;
    }
    SECTION("a peer id that does not exist") {
        item.peer = {77, 1};
        why = "not up";
        code = Code::unavailable;
    }
    const Seen done = rig.run(item);
    CHECK(done.event.code == code);
    INFO(done.error);
    CHECK(done.error.find(why) != std::string::npos);
    CHECK(rig.remote.data()[region_bytes - 1] != std::byte{0});
    CHECK(rig.remote.data()[1] != std::byte{0});
}

TEST_CASE("sm: access that was not granted is refused") {
    const bool readable = GENERATE(true, false);
    AccessRig rig(readable ? Access::read : Access::write);
    const Seen put = rig.run(rig.item(na::RmaKind::put));
    const Seen get = rig.run(rig.item(na::RmaKind::get));
    CHECK(get.event.code == (readable ? Code::ok : Code::permission_denied));
    CHECK(put.event.code == (readable ? Code::permission_denied : Code::ok));
}

TEST_CASE("sm: a fence ends access, and the index can be exposed again with another generation") {
    AccessRig rig;
    rig.server.endpoint->fence(rig.exposure.region, na::Holders::lost);
    CHECK(await({&rig.server}, rig.server, EventKind::region_fenced).event.region == 7);
    const Seen done = rig.run(rig.item(na::RmaKind::get));
    CHECK(done.event.code == Code::permission_denied);
    CHECK(done.error.find("revoked") != std::string::npos);
    rig.exposure.generation = 4;
    REQUIRE(rig.server.endpoint->expose(rig.exposure).ok());
    CHECK(rig.run(rig.item(na::RmaKind::get)).event.code == Code::ok);
}

TEST_CASE("sm: transfers beyond the depth wait, each accepted one completes once") {
    AccessRig rig;
    std::vector<na::RmaItem> items(40, rig.item(na::RmaKind::get));
    for (std::size_t i = 0; i < items.size(); ++i) items[i].cookie = i;
    std::size_t posted = 0;
    std::size_t done = 0;
    const TimePoint end = real_now() + test_timeout;
    while (done < items.size()) {
        REQUIRE(real_now() < end);
        posted += rig.client.endpoint->post(std::span(items).subspan(posted));
        REQUIRE(posted - done <= rig.client.endpoint->limits().rma_depth);
        rig.client.turn();
        while (rig.client.find(EventKind::rma_done)) {
            REQUIRE(rig.client.take(EventKind::rma_done).event.cookie == done++);
        }
    }
}

TEST_CASE("sm: one poll copies a bounded amount, so that messages are not delayed") {
    AccessRig rig;
    const na::RmaItem item = rig.item(na::RmaKind::get);
    REQUIRE(rig.client.endpoint->post({&item, 1}) == 1);
    CHECK(rig.client.turn() == 0);
    CHECK(rig.client.turn() == 0);
    await({&rig.client}, rig.client, EventKind::rma_done);
}

TEST_CASE("sm: transfers to a peer that is closed complete as cancelled") {
    AccessRig rig;
    const na::RmaItem item = rig.item(na::RmaKind::get);
    REQUIRE(rig.client.endpoint->post({&item, 1}) == 1);
    rig.client.endpoint->close(rig.at_client);
    CHECK(await({&rig.client}, rig.client, EventKind::rma_done).event.code == Code::cancelled);
}

TEST_CASE("sm: an endpoint may sleep only when no transfer is pending") {
    AccessRig rig;
    const na::RmaItem item = rig.item(na::RmaKind::get);
    CHECK(rig.client.endpoint->arm());
    REQUIRE(rig.client.endpoint->post({&item, 1}) == 1);
    CHECK(!rig.client.endpoint->arm());
    await({&rig.client}, rig.client, EventKind::rma_done);
    CHECK(rig.client.endpoint->arm());
}

TEST_CASE("sm: a fence waits for a running copy, even after its connection is closed") {
    SmNode server(unique_name("fence"));
    SmRawPeer peer(server.endpoint->address().substr(5));
    const na::PeerId id = peer.join(server);
    Buffer buffer = *server.arena->allocate(4096);
    REQUIRE(server.endpoint->expose({5, 1, 1, buffer.bytes(), Access::write}).ok());
    peer.writer_words().accessing.store(6);  // In the middle of a copy to region 5.
    SECTION("until the copy ends") {
        server.endpoint->fence(5, na::Holders::lost);
        for (int i = 0; i < 1000; ++i) REQUIRE(server.turn() == 0);
        CHECK(server.endpoint->next_deadline() != never);
        peer.writer_words().accessing.store(0);
    }
    SECTION("until the copy ends, after the owner closed the connection") {
        server.endpoint->close(id);
        server.endpoint->fence(5, na::Holders::lost);
        for (int i = 0; i < 1000; ++i) REQUIRE(server.turn() == 0);
        peer.writer_words().accessing.store(0);
    }
    SECTION("until the peer has disconnected") {
        server.endpoint->fence(5, na::Holders::lost);
        for (int i = 0; i < 1000; ++i) REQUIRE(server.turn() == 0);
        peer.socket.reset();
    }
    SECTION("until the peer has disconnected, after the owner closed the connection") {
        server.endpoint->close(id);
        server.endpoint->fence(5, na::Holders::lost);
        for (int i = 0; i < 1000; ++i) REQUIRE(server.turn() == 0);
        peer.socket.reset();
    }
    CHECK(await({&server}, server, EventKind::region_fenced).event.region == 5);
}

TEST_CASE("sm: a running copy to another region does not delay a fence") {
    SmNode server(unique_name("fence"));
    SmRawPeer peer(server.endpoint->address().substr(5));
    peer.join(server);
    peer.writer_words().accessing.store(6);
    server.endpoint->fence(4, na::Holders::lost);
    CHECK(await({&server}, server, EventKind::region_fenced).event.region == 4);
}
