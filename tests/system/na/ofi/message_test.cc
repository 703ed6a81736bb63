// Messages of ofi+tcp between endpoints of one process.
#include "support/ofi_rig.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

TEST_CASE("ofi: two endpoints connect and exchange messages") {
    Node server(ofi_any_port), client;
    na::PeerId incoming;
    const na::PeerId peer = join(client, server, &incoming);
    REQUIRE(client->info(peer));
    CHECK(client->info(peer)->uri == server->address());
    REQUIRE(server->info(incoming));
    CHECK(server->info(incoming)->incarnation != client->info(peer)->incarnation);

    REQUIRE(client.send(peer, "ping"));
    client->flush();
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
    CHECK(server.seen.front().bytes == "ping");
    CHECK(server.seen.front().event.peer == incoming);
    REQUIRE(server.send(incoming, "pong"));
    server->flush();
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::message); }));
    CHECK(client.seen.front().bytes == "pong");
}

TEST_CASE("ofi: commits of one turn arrive in order, joined at multiples of eight bytes") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    for (const char* frame : {"first", "second", "third"}) REQUIRE(client.send(peer, frame));
    client->flush();
    REQUIRE(turn_until({&client, &server}, [&] { return server.count(EventKind::message) == 2; }));
    CHECK(server.seen[0].bytes == "first");
    CHECK(server.seen[1].bytes == std::string("second\0\0third", 13));
}

TEST_CASE("ofi: the largest message arrives unchanged, and a larger one is refused") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    const std::size_t most = client->limits().message_bytes_max;
    REQUIRE(client->limits().eager_bytes_max == 128 * 1024);
    CHECK(client->reserve(peer, most + 1) == nullptr);
    std::string frame(most, 'x');
    frame.back() = 'y';
    REQUIRE(client.send(peer, frame));
    client->flush();
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::message); }));
    CHECK(server.seen[0].bytes == frame);
}

TEST_CASE("ofi: a peer that does not receive fills up, and writable follows when it has room") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    const std::string frame(client->limits().message_bytes_max, 'x');
    // First the kernel's buffers fill, then the slots; the server is not turned.
    std::size_t sent = 0;
    TimePoint last = real_now();
    while (real_now() < last + 200ms) {
        if (client.send(peer, frame)) {
            client->flush();
            last = real_now();
            REQUIRE(++sent < 5000);
        }
        client.turn();
    }
    client.seen.clear();
    REQUIRE(client.send(peer, frame) == false);
    REQUIRE(turn_until({&client, &server}, [&] {
        return client.find(EventKind::writable) && server.count(EventKind::message) == sent;
    }));
    CHECK(client.send(peer, frame));
}

TEST_CASE("ofi: many small messages keep their order") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    constexpr std::uint64_t total = 20'000;
    std::uint64_t sent = 0, received = 0;
    const bool finished = turn_until({&client, &server}, [&] {
        for (int burst = 0; burst < 50 && sent < total; ++burst) {
            if (!client.send(peer, {reinterpret_cast<const char*>(&sent), sizeof sent})) break;
            ++sent;
        }
        client->flush();
        for (const Seen& entry : server.seen) {
            REQUIRE(entry.event.kind == EventKind::message);
            REQUIRE(entry.bytes.size() % sizeof sent == 0);
            for (std::size_t at = 0; at < entry.bytes.size(); at += sizeof sent) {
                std::uint64_t number = 0;
                std::memcpy(&number, entry.bytes.data() + at, sizeof number);
                REQUIRE(number == received++);
            }
        }
        server.seen.clear();
        return received == total;
    });
    CHECK(finished);
}
