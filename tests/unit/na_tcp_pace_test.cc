// How much of a turn bulk takes, alone and beside messages.
#include "na/tcp/pace.h"

#include <algorithm>
#include <array>

#include "support/na_rma.h"
#include "support/tcp_raw_peer.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

constexpr std::size_t KiB = 1024;

struct Paced {
    Pace pace;
    TimePoint now = TimePoint(1h);

    bool is_quiet() const { return pace.slice_bytes(now) == Pace::slice_bytes_quiet; }
    void talk(int messages, bool beside = false) {
        for (int i = 0; i < messages; ++i) pace.talked(now, beside);
    }
};

}  // namespace

TEST_CASE("tcp pace: a message beside bulk keeps slices short for a while") {
    Paced flow;
    CHECK(flow.is_quiet());
    flow.talk(1, true);
    CHECK_FALSE(flow.is_quiet());
    flow.now += Pace::busy_for - 1ns;
    CHECK_FALSE(flow.is_quiet());
    flow.now += 1ns;
    CHECK(flow.is_quiet());
}

TEST_CASE("tcp pace: the bodies of large calls are quick") {
    Paced flow;
    const std::size_t bytes = GENERATE(128 * KiB, 192 * KiB, 1024 * KiB);
    for (int call = 0; call < 1000; ++call) {
        flow.talk(4);  // Request, reply, and what lends and returns the memory.
        flow.now += 20us;
        CHECK(flow.is_quiet());
        flow.pace.moved(flow.now, bytes);
    }
}

TEST_CASE("tcp pace: bursts of bulk among many messages are found out") {
    Paced flow;
    int bursts = 0;
    while (flow.is_quiet() && bursts < 100) {
        flow.pace.moved(flow.now, 256 * KiB);
        ++bursts;
        flow.talk(20);
        flow.now += 200us;
    }
    CHECK(bursts < 5);
    // Until they stop.
    flow.now += 10ms;
    CHECK(flow.is_quiet());
}

TEST_CASE("tcp pace: what was said before a transfer does not slow it") {
    Paced flow;
    flow.talk(1000);
    CHECK(flow.is_quiet());
    flow.pace.moved(flow.now, 16 * KiB);
    CHECK(flow.is_quiet());
}

TEST_CASE("tcp pace: messages count as beside bulk that waits for room") {
    NaRig rig = NaRig::on<wires::Tcp>();
    NaNode& server = rig.open();
    ExposedMemory region(rig, server, 1 << 20, Access::read);
    TcpRawLane talk(server->address()), bulk(server->address());
    REQUIRE(bulk.say_join(talk.join(rig)));
    REQUIRE(decode_joined(bulk.hear_frame(rig)).ok());

    const RmaItem item = region.get({}, 0, {});
    BulkHead get;
    get.op = BulkOp::get;
    get.region = item.region;
    get.generation = item.generation;
    get.key = item.key;
    get.length = 1 << 20;
    for (int i = 0; i < 64; ++i) REQUIRE(bulk.say_value(get));
    REQUIRE(rig.pump_until([&] { return bulk.has_come() && server->arm(); }));

    std::array<Event, 16> events;
    TimePoint now = rig.now() + 1h;  // Nothing was said or moved for long.
    const auto poll = [&] { return server->poll(events, now); };
    REQUIRE(talk.say_value(StreamHead{1, 0, 0, sizeof(StreamHead)}));
    REQUIRE(rig.pump_until([&] { return poll() == 1; }));
    CHECK(events[0].kind == EventKind::message);
    bulk.drop_heard();
    std::size_t most = 0, all = 0;
    for (int i = 0; i < 200; ++i) {
        now += 1us;
        poll();
        const std::size_t bytes = bulk.drop_heard();
        most = std::max(most, bytes);
        all += bytes;
    }
    CHECK(all > 0);
    CHECK(most <= 2 * Pace::slice_bytes_busy);
}
