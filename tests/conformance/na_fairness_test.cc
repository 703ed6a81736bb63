// Several peers of one endpoint: the number of its polls for which one peer waits while others keep
// it busy. Only polls with events count, so that neither a clock nor other load decides.
#include <algorithm>
#include <vector>

#include "support/na_rma.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

namespace {

constexpr int crowd = 6;
// From each client: together more than an endpoint reads in one turn.
constexpr std::size_t bytes_per_turn = 64 * 1024;

// Clients of one server; those of the crowd always have more data to be read.
struct Crowd {
    NaRig& rig;
    NaNode& server;
    std::vector<NaNode*> clients;
    std::vector<PeerId> to;    // The server's id at each client,
    std::vector<PeerId> from;  // and each client's id at the server.
    std::size_t bytes;         // Of each frame of the crowd.
    int polls = 0;             // Polls of the server that returned events.

    Crowd(NaRig& on, std::size_t frame_bytes) : rig(on), server(on.open()), bytes(frame_bytes) {
        for (int i = 0; i < crowd; ++i) join();
        if (bytes == 0) bytes = server->info(from[0])->message_bytes_max;
    }
    std::size_t join() {
        NaNode& client = rig.open({.listens = false});
        clients.push_back(&client);
        to.push_back(rig.connect(client, server));
        from.push_back(server.peer_of(client.incarnation));
        return clients.size() - 1;
    }
    // Each endpoint has a turn, the server with one poll.
    void turn(std::size_t batch = 16) {
        for (int i = 0; i < crowd; ++i) {
            const auto at = static_cast<std::size_t>(i);
            std::size_t left = bytes_per_turn;
            for (int sent = 0; left > 0 && sent < 200 && clients[at]->send(to[at], bytes); ++sent) {
                left -= std::min(left, bytes);
            }
        }
        for (std::size_t i = 0; i < clients.size(); ++i) refill(*clients[i], to[i]);
        if (server.poll(batch) != 0) {
            ++polls;
        } else {
            rig.step_time();
        }
        server->flush();
    }
    // Sends as much as there is room for. A client may need some polls to detect that there is room
    // again; only polls of the server count.
    static void refill(NaNode& client, PeerId server) {
        for (int polls = 0; polls < 20; ++polls) {
            client->flush();
            client.poll();
            if (client->unsent(server) < bytes_per_turn) return;
        }
    }
    // False: it took longer than any network may.
    template <class Done>
    bool turn_until(Done&& done, std::size_t batch = 16) {
        const TimePoint end = rig.now() + test_timeout;
        while (!done()) {
            if (rig.now() >= end) return false;
            turn(batch);
        }
        return true;
    }
    std::uint64_t received(std::size_t client) { return server.at(from[client]).received; }
};

}  // namespace

CONFORMANCE("peers that flood an endpoint get similar shares") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    const std::size_t bytes = GENERATE(std::size_t{0}, std::size_t{2000});
    Crowd all(rig, bytes);
    // Frames already in flight do not count.
    REQUIRE(all.turn_until([&] { return all.polls >= 30; }));
    std::vector<std::uint64_t> before, got;
    for (std::size_t i = 0; i < crowd; ++i) before.push_back(all.received(i));
    REQUIRE(all.turn_until([&] { return all.polls >= 30 + 20 * crowd; }));
    for (std::size_t i = 0; i < crowd; ++i) got.push_back(all.received(i) - before[i]);
    const auto [least, most] = std::ranges::minmax_element(got);
    INFO("frames of " << all.bytes << " bytes: " << *least << " to " << *most);
    CHECK(*least * 10 >= *most * 7);
}

CONFORMANCE("a lone message arrives within a bounded number of polls while others flood") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    const std::size_t bytes = GENERATE(std::size_t{8}, std::size_t{2000});
    const std::size_t batch = GENERATE(std::size_t{8}, std::size_t{64});
    Crowd all(rig, bytes);
    const std::size_t quiet = all.join();
    for (std::uint64_t round = 1; round <= 3; ++round) {
        const int before = all.polls;
        INFO("frames of " << all.bytes << " bytes, " << batch << " events a poll, round " << round);
        REQUIRE(all.turn_until([&] { return all.clients[quiet]->send(all.to[quiet], 8); }, batch));
        REQUIRE(all.turn_until([&] { return all.received(quiet) == round; }, batch));
        // Over some networks all frames in flight from other peers arrive before it.
        CHECK(all.polls - before <= 200 * crowd);
    }
}

// A turn that takes one event and leaves the others to the next turn.
CONFORMANCE("a lone message arrives while others flood when each poll takes one event") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    // A device's queue holds the completions of all peers in the order of their arrival.
    if (rig.wire.scheme.ends_with("verbs")) return;
    Crowd all(rig, GENERATE(std::size_t{8}, std::size_t{2000}));
    const std::size_t quiet = all.join();
    for (std::uint64_t round = 1; round <= 3; ++round) {
        const int before = all.polls;
        INFO("round " << round);
        REQUIRE(all.turn_until([&] { return all.clients[quiet]->send(all.to[quiet], 8); }, 1));
        REQUIRE(all.turn_until([&] { return all.received(quiet) == round; }, 1));
        // All frames in flight from other peers may arrive before it.
        CHECK(all.polls - before <= 400 * crowd);
    }
}

CONFORMANCE("a new client is accepted and read while others flood") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    Crowd all(rig, 2000);
    REQUIRE(all.turn_until([&] { return all.polls >= 20; }));
    NaNode& late = rig.open({.listens = false});
    all.clients.push_back(&late);
    PeerId to;
    REQUIRE(all.turn_until([&] {
        // Connects again when the transport's timeout expires: turns of all nodes in one thread are
        // long.
        if (!to || late.at(to).state == PeerState::down) {
            to = rig.start_connect(late, all.server->address());
        }
        return late.at(to).state == PeerState::up;
    }));
    REQUIRE(late.send(to, 8));
    PeerId from;
    REQUIRE(all.turn_until([&] {
        from = all.server.peer_of(late.incarnation);
        return from && all.server.at(from).received == 1;
    }));
}

// Events other than messages have room in the batches of a busy endpoint.
CONFORMANCE("transfers, fences and room are reported while others flood") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable() || !has_rma(rig)) return;
    const std::size_t batch = GENERATE(std::size_t{1}, std::size_t{16});
    Crowd all(rig, 2000);
    NaNode& owner = *all.clients[0];
    ExposedMemory theirs(rig, owner, 4096, Access::read_write);
    ExposedMemory ours(rig, all.server, 4096, Access::read_write);
    Buffer local = rig.allocate(4096);
    REQUIRE(all.turn_until([&] { return all.polls >= 20; }, batch));
    std::uint64_t cookie = 0;
    const int before = all.polls;
    REQUIRE(all.turn_until(
        [&] {
            if (cookie == 0) cookie = all.server.post(theirs.get(all.from[0], 0, local.bytes()));
            return cookie != 0 && all.server.rma_done.contains(cookie);
        },
        batch));
    CHECK(all.server.rma_done[cookie] == Code::ok);
    all.server.fence(ours.index());
    REQUIRE(all.turn_until([&] { return all.server.fenced.contains(ours.index()); }, batch));
    // Until it is refused, and the peer has read the messages.
    const PeerId to = all.from[1];
    const std::size_t bytes = all.server->info(to)->message_bytes_max;
    for (int i = 0; i < 10'000 && all.server.send(to, bytes); ++i) all.server->flush();
    REQUIRE(all.turn_until([&] { return all.server.at(to).writable; }, batch));
    CHECK(all.polls - before <= 1000 * crowd);
}

CONFORMANCE("peers that read nothing leave room to send to other peers") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    std::vector<PeerId> stopped;
    for (int i = 0; i < crowd; ++i) {
        NaNode& client = rig.open({.listens = false});
        rig.connect(client, server);
        stopped.push_back(server.peer_of(client.incarnation));
    }
    NaNode& reader = rig.open({.listens = false});
    rig.connect(reader, server);
    const PeerId to = server.peer_of(reader.incarnation);
    for (const PeerId peer : stopped) {
        const std::size_t bytes = server->info(peer)->message_bytes_max;
        for (int i = 0; i < 1000 && server.send(peer, bytes); ++i) {
            server->flush();
            server.poll();
        }
    }
    const TimePoint end = rig.now() + test_timeout;
    bool is_sent = false;
    for (PeerId from; !from || reader.at(from).received == 0;) {
        REQUIRE(rig.now() < end);
        if (!is_sent) is_sent = server.send(to, 100);
        server->flush();
        if (server.poll() + reader.poll() == 0) rig.step_time();
        from = reader.peer_of(server.incarnation);
    }
}
