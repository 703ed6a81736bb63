// The share of bulk in a turn, alone and beside messages.
#include "na/tcp/bulk_throttle.h"

#include <algorithm>
#include <array>
#include <utility>

#include "support/na_rma.h"
#include "support/tcp_raw_peer.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::na::tcp;

namespace {

constexpr std::size_t KiB = 1024;

struct Paced {
    BulkThrottle throttle;
    TimePoint now = TimePoint(1h);

    bool is_quiet() const { return throttle.slice_bytes(now) == BulkThrottle::slice_bytes_quiet; }
    void talk(int messages, bool beside = false) {
        for (int i = 0; i < messages; ++i) throttle.on_messages(now, beside);
    }
};

}  // namespace

TEST_CASE("tcp bulk throttle: a message beside bulk keeps slices short for a while") {
    Paced flow;
    CHECK(flow.is_quiet());
    flow.talk(1, true);
    CHECK_FALSE(flow.is_quiet());
    flow.now += BulkThrottle::busy_for - 1ns;
    CHECK_FALSE(flow.is_quiet());
    flow.now += 1ns;
    CHECK(flow.is_quiet());
}

TEST_CASE("tcp bulk throttle: the bodies of large calls use full slices") {
    Paced flow;
    const std::size_t bytes = GENERATE(128 * KiB, 192 * KiB, 1024 * KiB);
    for (int call = 0; call < 1000; ++call) {
        flow.talk(4);  // Request, reply, and the messages that expose and release the memory.
        flow.now += 20us;
        CHECK(flow.is_quiet());
        flow.throttle.on_bulk_bytes(flow.now, bytes);
    }
}

TEST_CASE("tcp bulk throttle: bursts of bulk among many messages are detected") {
    Paced flow;
    int bursts = 0;
    while (flow.is_quiet() && bursts < 100) {
        flow.throttle.on_bulk_bytes(flow.now, 256 * KiB);
        ++bursts;
        flow.talk(20);
        flow.now += 200us;
    }
    CHECK(bursts < 5);
    // Until the messages stop.
    flow.now += 10ms;
    CHECK(flow.is_quiet());
}

TEST_CASE("tcp bulk throttle: messages before a transfer do not slow it") {
    Paced flow;
    flow.talk(1000);
    CHECK(flow.is_quiet());
    flow.throttle.on_bulk_bytes(flow.now, 16 * KiB);
    CHECK(flow.is_quiet());
}

namespace {

// The owner of a region, polled alone, and a peer that uses it. The test controls the time.
struct Lanes {
    NaRig rig;
    NaNode& owner = rig.open();
    ExposedMemory region{rig, owner, 1 << 20, Access::read_write};
    TcpRawConnection talk{owner->address()}, bulk{owner->address()};
    TimePoint now;

    explicit Lanes(NaRig on() = [] { return NaRig::on<wires::Tcp>(); }) : rig(on()) {
        std::ranges::fill(region.bytes(), std::byte{0});
        REQUIRE(bulk.send_join(talk.join(rig)));
        REQUIRE(decode_joined(bulk.receive_frame(rig)).ok());
        now = rig.now();
    }
    bool ask(BulkOp op) {
        const RmaItem item = region.get({}, 0, {});
        BulkHead head;
        head.op = op;
        head.region = item.region;
        head.generation = item.generation;
        head.key = item.key;
        head.length = 1 << 20;
        return bulk.send_value(head);
    }
    void poll() {
        now += 1us;
        count = owner->poll(events, now);
    }
    template <class Done>
    void poll_until(Done&& done) {
        const TimePoint end = rig.now() + test_timeout;
        do {
            REQUIRE(rig.now() < end);
            poll();
        } while (!done());
    }
    // Bytes of a put.
    void write(std::size_t bytes) {
        REQUIRE(bulk.say(std::vector<std::byte>(bytes, std::byte{1})));
    }
    std::size_t landed() {
        return static_cast<std::size_t>(std::ranges::count(region.bytes(), std::byte{1}));
    }
    void send_message() { REQUIRE(talk.send_value(StreamHead{1, 0, 0, sizeof(StreamHead)})); }
    // A message arrives.
    void say() {
        send_message();
        poll_until([&] { return count == 1; });
        CHECK(events[0].kind == EventKind::message);
    }
    std::size_t count = 0;
    std::array<Event, 16> events;
};

// The owner has 64 MiB to send, and the peer reads only when the test calls for it.
struct FullLane : Lanes {
    FullLane() {
        for (int i = 0; i < 64; ++i) REQUIRE(ask(BulkOp::get));
        poll_until([&] { return bulk.has_come() && owner->arm(); });
    }
    // The bytes that a poll writes, averaged over the polls that wrote any.
    template <class Between>
    std::size_t written_per_poll(Between&& between) {
        bulk.discard_received();
        std::size_t bytes = 0, polls = 0;
        const TimePoint end = rig.now() + test_timeout;
        while (bytes < 24 * KiB * KiB && polls < 300) {
            REQUIRE(rig.now() < end);
            between();
            poll();
            const std::size_t came = bulk.discard_received();
            bytes += came;
            polls += came > 0;
        }
        return bytes / polls;
    }
    std::size_t written_per_poll() {
        return written_per_poll([] {});
    }
};

// The peer stalls in the middle of a put.
struct HalfPut : Lanes {
    HalfPut() {
        REQUIRE(ask(BulkOp::put));
        write(300 * KiB);
        poll_until([&] { return landed() == 300 * KiB; });
    }
};

}  // namespace

// Each poll writes one or two slices.
TEST_CASE("tcp bulk throttle: messages shorten the slices of bulk that waits for room") {
    FullLane lane;
    lane.now += 20ms;  // No message and no bulk for a while.
    lane.say();
    CHECK(lane.written_per_poll() <= 2 * BulkThrottle::slice_bytes_busy);
}

TEST_CASE("tcp bulk throttle: messages do not shorten the slices of a lane that stalls") {
    FullLane lane;
    lane.now += 60ms;
    lane.say();
    CHECK(lane.written_per_poll() > 4 * BulkThrottle::slice_bytes_busy);
}

TEST_CASE("tcp bulk throttle: a part of a message does not shorten slices") {
    FullLane lane;
    lane.now += 20ms;
    REQUIRE(lane.talk.send_value(StreamHead{1, 0, 0, 4096}));
    const auto a_byte = [&] { REQUIRE(lane.talk.send_value(std::byte{0})); };
    CHECK(lane.written_per_poll(a_byte) > 4 * BulkThrottle::slice_bytes_busy);
}

TEST_CASE("tcp bulk throttle: messages shorten the slices of a pending put until it stalls") {
    HalfPut lane;
    const bool stands = GENERATE(false, true);
    lane.now += stands ? 60ms : 20ms;
    lane.say();
    lane.write(300 * KiB);
    std::size_t before = 300 * KiB, most = 0;  // `most`: the bytes that one poll read.
    lane.poll_until([&] {
        const std::size_t landed = lane.landed();
        most = std::max(most, landed - std::exchange(before, landed));
        return landed == 600 * KiB;
    });
    if (stands) {
        CHECK(most > 2 * BulkThrottle::slice_bytes_busy);
    } else {
        CHECK(most <= 2 * BulkThrottle::slice_bytes_busy);
    }
}

// Bytes sent over a socket of this host arrive at once.
TEST_CASE("tcp bulk throttle: messages are delivered before bulk, which is delayed by one poll") {
    const bool reads = GENERATE(true, false);
    Lanes lane([] { return NaRig::on<wires::Unix>(); });
    std::size_t landed = 0;
    const auto moves = [&] {
        if (!reads) return lane.bulk.discard_received() > 0;
        return std::exchange(landed, lane.landed()) != landed;
    };
    REQUIRE(lane.ask(reads ? BulkOp::put : BulkOp::get));
    lane.say();
    lane.poll();
    std::vector<bool> moved;
    for (int i = 0; i < 6; ++i) {
        if (reads) lane.write(KiB);
        (void)moves();
        lane.send_message();
        lane.poll();
        REQUIRE(lane.count == 1);
        moved.push_back(moves());
    }
    CHECK(moved == std::vector{false, true, false, true, false, true});
}
