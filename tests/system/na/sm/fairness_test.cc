// No peer starves: neither one among many busy peers nor one that waits for room.
#include <poll.h>

#include <map>

#include "support/sm_node.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("sm: more busy clients than a poll has events for are all served") {
    for (const int clients : {64, 65, 66, 130}) {
        const std::string name = unique_name("many");
        SmNode server(name), client;
        std::vector<na::PeerId> peers;
        for (int i = 0; i < clients; ++i) {
            peers.push_back(client.connect(name));
            await({&server, &client}, client, na::EventKind::peer_up);
        }
        turn_until({&server}, [&] { return server.seen.size() == std::size_t(clients); });
        server.seen.clear();
        std::map<std::uint32_t, int> served;
        for (int round = 0; round < 300; ++round) {
            for (const na::PeerId peer : peers) client.send(peer, "word");
            client.endpoint->flush();
            server.turn();
            for (const auto& seen : server.seen) ++served[seen.event.peer.index];
            server.seen.clear();
        }
        CHECK(served.size() == std::size_t(clients));
    }
}

TEST_CASE("sm: a client with as many messages as a poll takes does not starve another one") {
    const std::string name = unique_name("two");
    SmNode server(name), busy, other;
    const na::PeerId at_busy = busy.connect(name);
    await({&server, &busy}, busy, na::EventKind::peer_up);
    const na::PeerId at_other = other.connect(name);
    await({&server, &other}, other, na::EventKind::peer_up);
    turn_until({&server}, [&] { return server.seen.size() == 2; });
    server.seen.clear();
    int got = 0;
    other.send(at_other, "other");
    other.endpoint->flush();
    for (int round = 0; round < 300; ++round) {
        for (int i = 0; i < 64; ++i) busy.send(at_busy, "busy");
        busy.endpoint->flush();
        server.turn();
        for (const auto& seen : server.seen) got += seen.bytes == "other";
        server.seen.clear();
    }
    CHECK(got == 1);
}

TEST_CASE("sm: a writer that sleeps for room is woken, also when a freed quarter was not enough") {
    SmPair pair;
    const std::string text(500, 'x');
    while (pair.client.send(pair.at_client, text)) {
    }
    pair.client.endpoint->flush();
    const auto arm = [&] {
        for (int i = 0; i < 100; ++i) {
            if (pair.client.endpoint->arm()) return true;
            pair.client.turn();
        }
        return false;
    };
    const auto woken = [&] {
        pollfd watched{pair.client.endpoint->wait_fd(), POLLIN, 0};
        return ::poll(&watched, 1, 50) == 1;
    };
    pair.client.turn();
    REQUIRE(arm());
    for (std::size_t took = 1; took != 0 && !pair.client.find(na::EventKind::writable);) {
        took = pair.server.turn();
        if (!woken()) continue;
        pair.client.turn();
        pair.client.turn();
        if (!pair.client.find(na::EventKind::writable)) REQUIRE(arm());
    }
    CHECK(pair.client.find(na::EventKind::writable) != nullptr);
}
