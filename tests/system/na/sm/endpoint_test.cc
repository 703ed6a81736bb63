#include <algorithm>
#include <cstring>

#include "support/sm_node.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

TEST_CASE("sm: two endpoints connect and report each other's name and incarnation") {
    SmPair pair;
    const na::PeerInfo* server = pair.client.endpoint->info(pair.at_client);
    REQUIRE(server);
    CHECK(server->uri == "sm://" + pair.name);
    CHECK(server->message_bytes_max == pair.client.endpoint->limits().message_bytes_max);
    CHECK(server->eager_bytes_max == 64 * 1024);
    REQUIRE(pair.server.endpoint->info(pair.at_server));
    CHECK(pair.server.endpoint->address() == "sm://" + pair.name);
}

TEST_CASE("sm: messages arrive complete and in order in both directions") {
    SmPair pair;
    for (int i = 0; i < 1000; ++i) {
        REQUIRE(pair.client.send(pair.at_client, "ping " + std::to_string(i)));
        REQUIRE(pair.server.send(pair.at_server, "pong " + std::to_string(i)));
        if (i % 7 == 0) {
            pair.client.endpoint->flush();
            pair.server.endpoint->flush();
        }
    }
    pair.client.endpoint->flush();
    pair.server.endpoint->flush();
    turn_until({&pair.client, &pair.server},
               [&] { return pair.client.seen.size() == 1000 && pair.server.seen.size() == 1000; });
    for (int i = 0; i < 1000; ++i) {
        REQUIRE(pair.server.seen[i].bytes == "ping " + std::to_string(i));
        REQUIRE(pair.client.seen[i].bytes == "pong " + std::to_string(i));
        REQUIRE(pair.client.seen[i].event.peer == pair.at_client);
    }
}

TEST_CASE("sm: the first commit of a turn is sent without a flush") {
    SmPair pair;
    REQUIRE(pair.client.send(pair.at_client, "now"));
    CHECK(await({&pair.server}, pair.server, EventKind::message).bytes == "now");
}

TEST_CASE("sm: an abandoned claim sends nothing") {
    SmPair pair;
    REQUIRE(pair.client.endpoint->reserve(pair.at_client, 100));
    pair.client.endpoint->commit(0);
    REQUIRE(pair.client.send(pair.at_client, "real"));
    pair.client.endpoint->flush();
    CHECK(await({&pair.server}, pair.server, EventKind::message).bytes == "real");
}

TEST_CASE("sm: the largest message fits, and a larger one is refused") {
    SmPair pair;
    const std::size_t largest = pair.client.endpoint->limits().message_bytes_max;
    CHECK(pair.client.endpoint->reserve(pair.at_client, largest + 1) == nullptr);
    const std::string text(largest, 'x');
    REQUIRE(pair.client.send(pair.at_client, text));
    CHECK(await({&pair.server}, pair.server, EventKind::message).bytes == text);
}

TEST_CASE("sm: a large message stays outside of the ring until its commit") {
    SmPair pair;
    // Two claims of one position: the ring's own memory, and memory that no peer reads.
    std::byte* const in_ring = pair.client.endpoint->reserve(pair.at_client, 1000);
    REQUIRE(in_ring);
    std::memset(in_ring, 'r', 1000);
    pair.client.endpoint->commit(0);
    std::byte* const draft = pair.client.endpoint->reserve(pair.at_client, 60'000);
    REQUIRE(draft);
    std::memset(draft, 'd', 60'000);
    CHECK(std::count(in_ring, in_ring + 1000, std::byte{'r'}) == 1000);
    pair.client.endpoint->commit(0);

    // After an abandoned or a shortened message, the next one is complete.
    REQUIRE(pair.client.send(pair.at_client, "small"));
    REQUIRE(pair.client.endpoint->reserve(pair.at_client, 60'000));
    std::memset(draft, 'x', 50);
    pair.client.endpoint->commit(50);
    pair.client.endpoint->flush();
    turn_until({&pair.server}, [&] { return pair.server.seen.size() == 2; });
    CHECK(pair.server.seen[0].bytes == "small");
    CHECK(pair.server.seen[1].bytes == std::string(50, 'x'));
}

TEST_CASE("sm: a body that is copied out follows its head, whatever the length of both") {
    SmPair pair;
    na::Endpoint& client = *pair.client.endpoint;
    for (std::size_t bytes : {100, 10'000, 10'239, 10'240, 10'241, 40'000, 65'000}) {
        for (std::size_t head : {0, 1, 40, 63, 64, 90}) {
            INFO(head << " and " << bytes << " bytes");
            const std::string text(head, 'h'), body(bytes, static_cast<char>('a' + head % 26));
            std::byte* const claim = client.reserve(pair.at_client, head + bytes);
            REQUIRE(claim);
            std::memcpy(claim, text.data(), head);
            client.copy_out(claim + head, as_bytes(body));
            client.commit(head + bytes);
            client.flush();
            pair.server.seen.clear();
            turn_until({&pair.server}, [&] { return pair.server.seen.size() == 1; });
            CHECK(pair.server.seen[0].bytes == text + body);
            // A reply acknowledges what the peer took.
            REQUIRE(pair.server.send(pair.at_server, "taken"));
            pair.server.endpoint->flush();
            pair.client.seen.clear();
            turn_until({&pair.client}, [&] { return pair.client.seen.size() == 1; });
        }
    }
}

TEST_CASE("sm: a full ring refuses, writable follows, and no message is lost") {
    SmPair pair;
    const std::string text(60'000, 'y');
    std::size_t sent = 0;
    while (pair.client.send(pair.at_client, text)) ++sent;
    CHECK(sent == 4);
    pair.client.endpoint->flush();
    CHECK(pair.client.turn() == 0);
    turn_until({&pair.server}, [&] { return pair.server.seen.size() == sent; });
    await({&pair.client}, pair.client, EventKind::writable);
    CHECK(pair.client.send(pair.at_client, text));
}

TEST_CASE("sm: a sleeping writer is woken when the ring has space") {
    SmPair pair;
    const std::string text(60'000, 'y');
    while (pair.client.send(pair.at_client, text)) {
    }
    pair.client.endpoint->flush();
    REQUIRE(pair.client.endpoint->arm());
    turn_until({&pair.server}, [&] { return pair.server.seen.size() == 4; });
    await({&pair.client}, pair.client, EventKind::writable);
}

TEST_CASE("sm: an endpoint may connect to itself") {
    const std::string name = unique_name("self");
    SmNode node(name);
    const na::PeerId out = node.connect(name);
    turn_until({&node}, [&] { return node.seen.size() == 2; });
    node.seen.clear();
    REQUIRE(node.send(out, "hello me"));
    node.endpoint->flush();
    const Seen got = await({&node}, node, EventKind::message);
    CHECK(got.bytes == "hello me");
    CHECK(got.event.peer != out);
    node.endpoint->close(out);
    CHECK(await({&node}, node, EventKind::peer_down).event.peer == got.event.peer);
}

TEST_CASE("sm: a connect without a listener is UNAVAILABLE and names the address") {
    SmNode client;
    const std::string name = unique_name("nobody");
    const na::PeerId peer = client.connect(name);
    const Seen down = await({&client}, client, EventKind::peer_down);
    CHECK(down.event.peer == peer);
    CHECK(down.event.code == Code::unavailable);
    CHECK(down.error.find("sm://" + name) != std::string::npos);
    CHECK(client.endpoint->info(peer) == nullptr);
    CHECK(client.endpoint->reserve(peer, 1) == nullptr);
}

TEST_CASE("sm: an orderly close is reported to the peer once, after the last message") {
    SmPair pair;
    REQUIRE(pair.client.send(pair.at_client, "last"));
    pair.client.endpoint->flush();
    pair.client.endpoint->close(pair.at_client);
    turn_until({&pair.server, &pair.client},
               [&] { return pair.server.find(EventKind::peer_down) != nullptr; });
    REQUIRE(pair.server.seen.size() == 2);
    CHECK(pair.server.seen[0].bytes == "last");
    CHECK(pair.server.seen[1].event.code == Code::unavailable);
    for (int i = 0; i < 1000; ++i) pair.client.turn();
    CHECK(pair.client.seen.empty());
    CHECK(pair.client.endpoint->reserve(pair.at_client, 1) == nullptr);
}
