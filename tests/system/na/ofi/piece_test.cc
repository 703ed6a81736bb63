// Messages of ofi+tcp that libfabric carries in several pieces.
#include "base/random.h"
#include "na/ofi/endpoint.h"
#include "support/no_more_memory.h"
#include "support/ofi_faults.h"
#include "support/ofi_process.h"
#include "support/seed.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;
using na::ofi::piece_bytes_max;

// Random, so that no two parts are equal.
static std::string frame_of(std::size_t bytes, std::uint64_t seed) {
    base::SeededRandom random(seed);
    std::string frame(bytes, 0);
    for (std::size_t at = 0; at < bytes; at += 8) {
        const std::uint64_t word = random.next();
        std::memcpy(frame.data() + at, &word, std::min<std::size_t>(8, bytes - at));
    }
    return frame;
}

TEST_CASE("ofi pieces: messages of all sizes arrive whole and in order") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    const std::size_t most = client->limits().message_bytes_max;
    std::vector<std::string> frames;
    for (std::size_t pieces = 1; pieces <= 4; ++pieces) {
        for (const std::size_t bytes : {pieces * piece_bytes_max - 1, pieces * piece_bytes_max,
                                        pieces * piece_bytes_max + 1}) {
            if (bytes <= most) frames.push_back(frame_of(bytes, bytes));
        }
    }
    frames.push_back(frame_of(most, 1));
    const std::uint64_t seed = seed_of(0);
    CAPTURE(seed);
    base::SeededRandom random(seed);
    while (frames.size() < 300) {
        const std::size_t bytes = 1 + random.next() % (random.next() % 2 ? most : 100);
        frames.push_back(frame_of(bytes, frames.size()));
    }
    std::size_t sent = 0, received = 0;
    REQUIRE(turn_until({&client, &server}, [&] {
        // One flush a message, so that none is joined to another.
        while (sent < frames.size() && client.send(peer, frames[sent])) {
            client->flush();
            ++sent;
        }
        for (const Seen& entry : server.seen) {
            REQUIRE(entry.event.kind == EventKind::message);
            REQUIRE(received < frames.size());
            REQUIRE(entry.bytes == frames[received]);
            ++received;
        }
        server.seen.clear();
        return received == frames.size();
    }));
}

TEST_CASE("ofi pieces: a delivered message stays valid until the next poll") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    std::vector<std::string> frames;
    for (std::uint64_t i = 0; i < 40; ++i) {
        frames.push_back(frame_of(i % 3 ? client->limits().message_bytes_max - i : 100 + i, i));
    }
    std::size_t received = 0, sent = 0;
    const TimePoint end = real_now() + test_timeout;
    while (received < frames.size()) {
        REQUIRE(real_now() < end);
        while (sent < frames.size() && client.send(peer, frames[sent])) ++sent;
        client->flush();
        client.turn();
        std::array<na::Event, 5> events;
        const std::size_t count = server->poll(events, real_now());
        for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(events[i].kind == EventKind::message);
            REQUIRE(as_text(events[i].bytes) == frames[received++]);
        }
    }
}

TEST_CASE("ofi pieces: a message continues after libfabric has returned EAGAIN") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    const std::string large = frame_of(3 * piece_bytes_max + 8, 1);
    for (int taken = 0; taken < 4; ++taken) {
        CAPTURE(taken);
        {
            const OfiRefuses some(3, taken);
            REQUIRE(client.send(peer, large));
            REQUIRE(client.send(peer, "behind it"));
            client->flush();
            REQUIRE(turn_until({&client}, [] { return ofi_refusals == 0; }));
        }
        REQUIRE(
            turn_until({&client, &server}, [&] { return server.count(EventKind::message) == 2; }));
        CHECK(server.seen[0].bytes == large);
        CHECK(server.seen[1].bytes == "behind it");
        server.seen.clear();
    }
}

// The number of messages that an endpoint accepts when none of them is sent: the slots of all
// peers.
static std::size_t slots_of(Node& client) {
    std::vector<std::unique_ptr<Node>> servers;
    std::vector<na::PeerId> peers;
    client.seen.clear();
    for (int i = 0; i < 16; ++i) {
        servers.push_back(std::make_unique<Node>(ofi_any_port));
        peers.push_back(join(client, *servers.back()));
    }
    turn_for({&client}, 50ms);  // The messages of the handshakes complete.
    const OfiRefuses all;
    // Too large to be joined to another.
    const std::string frame(na::ofi::piece_bytes_max / 2 + 1, 'x');
    std::size_t slots = 0;
    for (const na::PeerId& peer : peers) {
        while (client.send(peer, frame)) ++slots;
    }
    return slots;
}

// Retries: libfabric returns the buffers of a lost connection only when that connection is cut.
static bool gets_back_all_slots(Node& client) {
    Node untouched;
    const std::size_t all_slots = slots_of(untouched);
    REQUIRE(all_slots > na::ofi::send_slots / 2);
    const TimePoint end = real_now() + test_timeout;
    while (real_now() < end) {
        turn_for({&client}, 100ms);
        if (slots_of(client) == all_slots) return true;
    }
    return false;
}

TEST_CASE("ofi pieces: a peer closed in the middle of a message releases all its slots") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    {
        const OfiRefuses rest(std::numeric_limits<int>::max(), 2);
        REQUIRE(client.send(peer, frame_of(client->limits().message_bytes_max, 1)));
        REQUIRE(client.send(peer, frame_of(client->limits().message_bytes_max, 2)));
        client->close(peer);
    }
    CHECK(gets_back_all_slots(client));
    turn_for({&server}, 50ms);
    CHECK(server.count(EventKind::message) == 0);
}

TEST_CASE("ofi pieces: a peer goes down once when libfabric fails in the middle of a message") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    {
        const OfiRefuses rest(1, 2, EIO);
        REQUIRE(client.send(peer, frame_of(client->limits().message_bytes_max, 1)));
    }
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::peer_down); }));
    CHECK(client.find(EventKind::peer_down)->event.code == Code::unavailable);
    turn_for({&client, &server}, 50ms);
    CHECK(client.seen.size() == 1);
    CHECK(server.count(EventKind::message) == 0);
    CHECK(gets_back_all_slots(client));
}

TEST_CASE("ofi pieces: messages behind another peer's end are delivered by a later poll") {
    const bool closes = GENERATE(false, true);
    CAPTURE(closes);
    Node server(ofi_any_port), first, second, third;
    const na::PeerId ends = join(first, server);
    na::PeerId incoming;
    const na::PeerId sends = join(second, server, &incoming), later = join(third, server);
    const std::string frame = frame_of(second->limits().message_bytes_max, 1);
    const std::string other = frame_of(third->limits().message_bytes_max, 2);
    {
        // The bye of `first` is read first; its peer_down has a reason and so is the last event of
        // its poll.
        const OfiHoldsCompletions all;
        first->close(ends);
        REQUIRE(turn_until({&server}, [&] { return all.count() >= 1; }));
        REQUIRE(second.send(sends, frame));
        second->flush();
        REQUIRE(turn_until({&server}, [&] { return all.count() >= 5; }));
    }
    server.turn();
    REQUIRE(server.seen.size() == 1);
    REQUIRE(server.seen[0].event.kind == EventKind::peer_down);
    if (closes) server->close(incoming);
    REQUIRE(third.send(later, other));
    third->flush();
    const std::size_t messages = closes ? 1 : 2;
    REQUIRE(turn_until({&second, &third, &server},
                       [&] { return server.count(EventKind::message) == messages; }));
    CHECK(server.seen.back().bytes == other);
    if (!closes) CHECK(server.seen[1].bytes == frame);
    // The memory of both messages has been released.
    REQUIRE(third.send(later, frame));
    third->flush();
    REQUIRE(turn_until({&third, &server},
                       [&] { return server.count(EventKind::message) == messages + 1; }));
    CHECK(server.seen.back().bytes == frame);
}

TEST_CASE("ofi pieces: a peer killed in the middle of messages releases all its slots") {
    Process owner([](Process::Self& self) {
        Node server(ofi_any_port);
        self.tell(server->address());
        while (!server.find(EventKind::peer_up)) server.turn();
        self.tell("up");
        self.hear();  // Polls no more.
    });
    Node client;
    const na::PeerId peer = client.connect(owner.hear());
    REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
    REQUIRE(owner.hear() == "up");
    const std::string frame = frame_of(client->limits().message_bytes_max, 1);
    while (client.send(peer, frame)) client->flush();
    turn_for({&client}, 20ms);
    owner.kill();
    REQUIRE(turn_until({&client}, [&] {
        if (client.send(peer, frame)) client->flush();
        return client.find(EventKind::peer_down);
    }));
    CHECK(gets_back_all_slots(client));
}

#ifdef WEFT_TEST_MEMORY_LIMITS
TEST_CASE("ofi pieces: a peer fails with RESOURCE_EXHAUSTED when its message finds no memory") {
    Process owner([](Process::Self& self) {
        Node server(ofi_any_port);
        self.tell(server->address());
        while (!server.find(EventKind::peer_up)) server.turn();
        server.seen.reserve(100);
        self.tell(use_up_blocks_of(32 * 1024) ? "full" : "not full");
        while (!server.find(EventKind::peer_down)) server.turn();
        self.tell(std::string(name_of(server.find(EventKind::peer_down)->event.code)));
        self.hear();
    });
    Node client;
    const na::PeerId peer = client.connect(owner.hear());
    REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
    REQUIRE(owner.hear() == "full");
    REQUIRE(client.send(peer, frame_of(client->limits().message_bytes_max, 1)));
    client->flush();
    turn_for({&client}, 50ms);
    CHECK(owner.hear() == "RESOURCE_EXHAUSTED");
    owner.say("bye");
}
#endif
