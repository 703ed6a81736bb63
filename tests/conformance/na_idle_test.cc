// Sleeping: the needs of an idle endpoint, and the events that wake it.
#include <poll.h>

#include <algorithm>

#include "support/na_rma.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

static bool is_readable(int fd, int timeout_ms) {
    pollfd watch{fd, POLLIN, 0};
    return ::poll(&watch, 1, timeout_ms) == 1;
}

// The sleep of a context between its turns: until a wake, a timer of the endpoint, or `end`.
static void sleep(NaRig& rig, NaNode& node, TimePoint end) {
    const TimePoint until = std::min(end, node->next_deadline());
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(until - rig.now());
    is_readable(node->wait_fd(), static_cast<int>(std::max<std::int64_t>(left.count(), 0)));
}

// Polls until arm() lets the thread sleep.
static bool arm(NaRig& rig, NaNode& node) {
    return rig.pump_until([&] { return node.poll() == 0 && node->arm(); });
}

CONFORMANCE("an idle endpoint needs at most a few polls a second") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    rig.run_until_idle();
    if (rig.caps().virtual_time) {
        // Nothing is in flight, so no poll is needed.
        REQUIRE(rig.wire.world->next_event() == never);
        CHECK(pair.a->next_deadline() == never);
        return;
    }
    if (!rig.caps().wait_fd) {
        note_capability(rig.wire.scheme, "an idle endpoint has to be polled");
        return;
    }
    int wakes = 0;
    const TimePoint end = rig.now() + 500ms;
    while (rig.now() < end) {
        REQUIRE(arm(rig, pair.a));
        sleep(rig, pair.a, end);
        ++wakes;
    }
    INFO(wakes << " wakes in 500 ms");
    CHECK(wakes <= 60);
}

CONFORMANCE("a message makes the descriptor of an armed endpoint readable") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    if (!rig.caps().wait_fd) {
        CHECK(pair.b->wait_fd() == -1);
        note_capability(rig.wire.scheme, "no sleeping on a descriptor");
        return;
    }
    for (std::uint64_t round = 1; round <= 200; ++round) {
        REQUIRE(arm(rig, pair.b));
        REQUIRE(rig.pump_until([&] { return pair.a.send(pair.ab, 100); }));
        pair.a->flush();
        bool woken = false;
        for (int tries = 0; tries < 200 && !woken; ++tries) {
            woken = is_readable(pair.b->wait_fd(), 10);
            if (!woken) pair.a.poll();
        }
        REQUIRE(woken);
        REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == round; }));
    }
}

CONFORMANCE("an endpoint that never sleeps works without a descriptor") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open({.sleeps = false});
    NaNode& client = rig.open({.listens = false, .sleeps = false});
    if (!server->caps().wait_fd) {
        CHECK(server->wait_fd() == -1);
        CHECK_FALSE(server->arm());
    }
    const PeerId peer = rig.connect(client, server);
    const PeerId back = server.peer_of(client.incarnation);
    for (std::uint64_t round = 1; round <= 50; ++round) {
        REQUIRE(rig.pump_until([&] { return client.send(peer, 100); }));
        client->flush();
        REQUIRE(rig.pump_until([&] { return server.at(back).received == round; }));
    }
}

CONFORMANCE("an endpoint does not sleep through a message that arrived before arm()") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !rig.open({.listens = false})->caps().wait_fd) return;
    NaPair pair(rig);
    for (std::uint64_t round = 1; round <= 100; ++round) {
        pair.b.poll();
        REQUIRE(rig.pump_until([&] { return pair.a.send(pair.ab, 100); }));
        pair.a->flush();
        // Either arm() returns false, or the descriptor is readable, now or soon.
        bool served = false;
        for (int tries = 0; tries < 200 && !served; ++tries) {
            served = !pair.b->arm() || is_readable(pair.b->wait_fd(), 10);
            if (!served) pair.a.poll();
        }
        REQUIRE(served);
        REQUIRE(rig.pump_until([&] { return pair.b.at(pair.ba).received == round; }));
    }
}

CONFORMANCE("a new connection and a disconnect wake a sleeping endpoint") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !rig.open({.listens = false})->caps().wait_fd) return;
    NaNode& server = rig.open();
    NaNode& client = rig.open({.listens = false});
    REQUIRE(arm(rig, server));
    const PeerId peer = rig.start_connect(client, server->address());
    const auto sleep_until = [&](auto done) {
        const TimePoint end = rig.now() + test_timeout;
        while (!done() && rig.now() < end) {
            // Short, because the client shares this thread and needs polls as well.
            if (server->arm()) sleep(rig, server, rig.now() + 5ms);
            server.poll();
            client.poll();
        }
        return done();
    };
    REQUIRE(sleep_until([&] { return server.count(PeerState::up) == 1; }));
    REQUIRE(rig.pump_until([&] { return client.at(peer).state == PeerState::up; }));
    rig.destroy(client);
    // Only the end of the peer wakes it before that.
    const TimePoint end = rig.now() + promised(2s);
    while (server.downs.empty() && rig.now() < end) {
        if (server->arm()) sleep(rig, server, end);
        server.poll();
    }
    CHECK(server.downs.size() == 1);
    CHECK(rig.now() < end);
}

// Until `done`, `node` sleeps whenever it may; its peer does not sleep.
template <class Done>
static bool sleep_beside(NaRig& rig, NaNode& node, NaNode& peer, Done done) {
    const TimePoint end = rig.now() + test_timeout;
    while (!done() && rig.now() < end) {
        peer.poll();
        if (!node->arm() || is_readable(node->wait_fd(), 0) || rig.now() >= node->next_deadline()) {
            node.poll();
        }
    }
    return done();
}

CONFORMANCE("an endpoint that sleeps at a full connection is woken when there is room") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !rig.open({.listens = false})->caps().wait_fd) return;
    NaPair pair(rig);
    std::uint64_t sent = 0;
    // Asleep at once, or after many polls.
    for (const int polls : {1, 3000, 1, 3000}) {
        INFO("after " << polls << " polls and " << sent << " frames");
        for (int idle = 0; idle < polls; ++idle) {
            for (; pair.a.send(pair.ab, 1000); ++sent) idle = 0;
            pair.a->flush();
            pair.a.poll();
        }
        REQUIRE(sleep_beside(rig, pair.a, pair.b, [&] {
            return pair.b.at(pair.ba).received == sent && pair.a.at(pair.ab).writable;
        }));
    }
}

CONFORMANCE("an endpoint that sleeps during a transfer is woken to continue it") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !rig.open({.listens = false})->caps().wait_fd) return;
    NaPair pair(rig);
    const bool put = GENERATE(true, false);
    constexpr std::size_t bytes = 16 << 20;
    const std::size_t chunk = std::min<std::size_t>(pair.a->limits().rma_bytes_max, 1 << 20);
    ExposedMemory region(rig, pair.b, bytes, Access::read_write);
    Buffer local = rig.allocate(bytes);
    for (const int polls : {0, 3000, 0, 3000}) {
        INFO((put ? "put, after " : "get, after ") << polls << " polls");
        for (std::size_t at = 0; at + chunk <= bytes; at += chunk) {
            const Bytes part = local.bytes().subspan(at, chunk);
            if (pair.a.post(put ? region.put(pair.ab, at, part) : region.get(pair.ab, at, part)) ==
                0) {
                break;
            }
        }
        REQUIRE_FALSE(pair.a.rma_under_way.empty());
        pair.a->flush();
        for (int i = 0; i < polls; ++i) pair.a.poll();
        REQUIRE(sleep_beside(rig, pair.a, pair.b, [&] { return pair.a.rma_under_way.empty(); }));
        for (const Down& down : pair.a.downs) UNSCOPED_INFO(down.error);
        for (const auto& [cookie, code] : pair.a.rma_done) REQUIRE(code == Code::ok);
    }
}
