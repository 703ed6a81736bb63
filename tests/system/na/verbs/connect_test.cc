// Failures of connects over verbs, and the errors that they report.
#include <functional>

#include "na/address.h"
#include "na/verbs/endpoint.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using Raw = VerbsRawPeer;

// The connect succeeds, and the client gets no peer_down.
static void check_served(VerbsRig& rig, NaNode& client, PeerId peer, NaNode& server) {
    REQUIRE(rig->pump_until([&] { return client.at(peer).state == PeerState::up; }));
    REQUIRE(client.send(peer, 64));
    CHECK(rig->pump_until([&] {
        const PeerId seen = server.peer_of(client.incarnation);
        return seen && server.at(seen).received == 1;
    }));
    CHECK(client.downs.empty());
}

TEST_CASE("verbs connect: a queue pair number that is stale at the peer is replaced by another") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    rig.fake.make_stale(3);
    rig->connect(client, server);
    CHECK(client.downs.empty());
}

TEST_CASE("verbs connect: a connect fails when every queue pair number is stale") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    rig.fake.make_stale(1 << 30);
    rig->start_connect(client, server->address());
    const Down down = rig.wait_for_down(client);
    CHECK(down.code == Code::unavailable);
    says(down.error, "for an old one");
    CHECK(rig.fake.counts().connections <= 12);
}

TEST_CASE("verbs connect: no listener, no route and no address give different errors") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    rig->start_connect(client, "verbs://127.0.0.1:9");
    Down down = rig.wait_for_down(client, 1);
    CHECK(down.code == Code::unavailable);
    says(down.error, "nothing listens");

    rig.fake.lose_route();
    rig->start_connect(client, server->address());
    down = rig.wait_for_down(client, 2);
    CHECK(down.code == Code::unavailable);
    says(down.error, "ROUTE_ERROR");

    rig->start_connect(client, "verbs://127.0.0.3:9");
    down = rig.wait_for_down(client, 3);
    CHECK(down.code == Code::unavailable);
    says(down.error, "ADDR_ERROR");
}

TEST_CASE("verbs connect: a peer behind another device is refused with the device's name") {
    VerbsRig rig({.devices = 2});
    NaNode& there = rig->open({.uri = "verbs://127.0.0.2:0"});
    NaNode& here = rig->open();
    rig->start_connect(here, there->address());
    const Down down = rig.wait_for_down(here);
    CHECK(down.code == Code::unimplemented);
    says(down.error, "not over the device fake0");
}

TEST_CASE("verbs connect: an unanswered request fails by timeout, or when rdma_cm reports that") {
    VerbsRig rig;
    Raw silent;
    const std::string uri = silent.listen("verbs://127.0.0.1:0");
    NaNode& client = rig->open({.listens = false});
    rig->start_connect(client, uri);
    rig->run_until_idle();
    CHECK(client.downs.empty());
    rig->pass(2500ms);
    Down down = rig.wait_for_down(client, 1);
    CHECK(down.code == Code::unavailable);
    says(down.error, "no answer from " + uri);

    rig->start_connect(client, uri);
    rig->run_until_idle();
    rig.fake.expire();
    down = rig.wait_for_down(client, 2);
    CHECK(down.code == Code::unavailable);
    says(down.error, "UNREACHABLE");
}

TEST_CASE("verbs connect: a server without free queue pairs refuses with the reason") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    const PeerId first = rig->connect(client, server);
    // One more, which the client takes.
    const int used = rig.fake.counts().pairs;
    rig.fake.set_limits({.pairs_max = used + 1});
    rig->start_connect(client, server->address());
    Down down = rig.wait_for_down(client, 1);
    CHECK(down.code == Code::resource_exhausted);
    says(down.error, "queue pairs");
    rig.fake.set_limits({.pairs_max = used});
    rig->start_connect(client, server->address());
    down = rig.wait_for_down(client, 2);
    CHECK(down.code == Code::resource_exhausted);
    says(down.error, "queue pairs");
    rig.fake.set_limits({});
    REQUIRE(client.send(first, 64));
    rig->connect(client, server);
}

TEST_CASE("verbs connect: a full server refuses with RESOURCE_EXHAUSTED and the reason") {
    VerbsRig rig;
    NaNode& server = rig->open({.peers_max = 1});
    rig->connect(rig->open({.listens = false}), server);
    NaNode& late = rig->open({.listens = false});
    rig->start_connect(late, server->address());
    const Down down = rig.wait_for_down(late);
    CHECK(down.code == Code::resource_exhausted);
    says(down.error, "all 1 peers of the listener are in use");
}

TEST_CASE("verbs connect: silent connections are closed in favor of correct peers") {
    VerbsRig rig;
    NaNode& server = rig->open({.peers_max = 256});
    std::vector<std::unique_ptr<Raw>> strangers;
    std::byte words[verbs::connect_data_bytes];
    for (std::uint64_t i = 0; i < 80; ++i) {
        encode(verbs::ConnectData{{i, i}, 0, 4}, words);
        strangers.push_back(std::make_unique<Raw>());
        strangers.back()->connect(server->address(), words);
        rig->pump_until([&] {
            strangers.back()->step();
            return strangers.back()->state() == Raw::State::connected ||
                   strangers.back()->state() == Raw::State::refused;
        });
    }
    NaNode& honest = rig->open({.listens = false});
    rig->connect(honest, server);
    rig->pump_until([&] {
        std::size_t over = 0;
        for (auto& stranger : strangers) {
            stranger->step();
            over += stranger->state() >= Raw::State::refused ? 1 : 0;
        }
        return over >= 17;
    });
    // The others time out.
    rig->pass(2500ms);
    CHECK(rig->pump_until([&] {
        std::size_t over = 0;
        for (auto& stranger : strangers) {
            stranger->step();
            over += stranger->state() >= Raw::State::refused ? 1 : 0;
        }
        return over == strangers.size();
    }));
    CHECK(server.downs.empty());
    CHECK(server.peer_of(honest.incarnation));
}

TEST_CASE("verbs connect: a listener that refuses without a reason is retried, then fails") {
    VerbsRig rig;
    Raw raw;
    const std::string uri = raw.listen("verbs://127.0.0.1:0");
    NaNode& client = rig->open({.listens = false});
    const int before = rig.fake.counts().total();
    int refused = 0;
    const PeerId peer = rig->start_connect(client, uri);
    REQUIRE(rig->pump_until([&] {
        raw.step();
        if (raw.state() == Raw::State::asked) {
            raw.reject({});
            if (++refused == 3) rig->skip(1s);
        }
        return !client.downs.empty();
    }));
    CHECK(refused >= 5);
    CHECK(refused <= 21);
    CHECK(client.downs[0].peer == peer);
    CHECK(client.downs[0].code == Code::unavailable);
    says(client.downs[0].error, uri + " refused without a reason");
    REQUIRE(rig->pump_until([&] { return rig.fake.counts().total() <= before + 1; }));
}

TEST_CASE("verbs connect: time in which a client stalls does not count for refusals") {
    VerbsRig rig;
    Raw raw;
    const std::string uri = raw.listen("verbs://127.0.0.1:0");
    NaNode& client = rig->open({.listens = false});
    int refused = 0;
    rig->start_connect(client, uri);
    REQUIRE(rig->pump_until([&] {
        raw.step();
        if (raw.state() == Raw::State::asked) {
            raw.reject({});
            if (++refused == 2) rig->skip(3s);
        }
        return !client.downs.empty();
    }));
    CHECK(refused > 10);
    CHECK(refused <= 21);
}

TEST_CASE("verbs connect: a listener that disconnects before its hello is retried") {
    VerbsRig rig;
    NaNode& client = rig->open({.listens = false});
    auto brief = std::make_unique<Raw>();
    const std::string uri = brief->listen("verbs://127.0.0.1:0");
    const PeerId peer = rig->start_connect(client, uri);
    const auto reach = [&](Raw::State state) {
        return rig->pump_until([&] {
            brief->step();
            return brief->state() == state;
        });
    };
    REQUIRE(reach(Raw::State::asked));
    std::byte words[verbs::connect_data_bytes];
    encode(verbs::ConnectData{{5, 6}, 0, 4}, words);
    brief->accept(words);
    REQUIRE(reach(Raw::State::connected));
    rig->run_until_idle();
    brief.reset();
    NaNode& server = rig->open({.uri = uri});
    check_served(rig, client, peer, server);
}

// The client is the last in a server's table of pending peers, and silent for the longest time.
TEST_CASE("verbs connect: a client that is evicted before its hello reconnects") {
    VerbsRig rig;
    NaNode& server = rig->open({.peers_max = 256});
    NaNode& client = rig->open({.listens = false});
    const int before = rig.fake.counts().pairs;
    const PeerId peer = rig->start_connect(client, server->address());
    const auto serve_until = [&](const std::function<bool()>& done) {
        for (int turns = 0; turns < 10'000 && !done(); ++turns) server.poll();
        REQUIRE(done());
    };
    serve_until([&] {  // The client's queue pair, and the server's for it.
        if (rig.fake.counts().pairs == before) client.poll();
        return rig.fake.counts().pairs == before + 2;
    });
    rig->skip(60ms);
    std::vector<std::unique_ptr<Raw>> strangers;
    std::byte words[verbs::connect_data_bytes];
    for (std::uint64_t i = 0; i < verbs::pending_peers_max; ++i) {
        encode(verbs::ConnectData{{i, i}, 0, 4}, words);
        strangers.push_back(std::make_unique<Raw>());
        strangers.back()->connect(server->address(), words);
        serve_until([&] {
            strangers.back()->step();
            return strangers.back()->state() == Raw::State::connected;
        });
    }
    // The client is polled again. The pending peers are too new to be evicted, and the next attempt
    // is refused.
    REQUIRE(rig->pump_until([&] { return !client->why_waiting(peer).empty(); }));
    CHECK(client.downs.empty());
    check_served(rig, client, peer, server);
}

TEST_CASE("verbs connect: a server that restarts at its address can be reached again") {
    VerbsRig rig;
    NaNode& first = rig->open();
    const std::string uri = first->address();
    NaNode& client = rig->open({.listens = false});
    const PeerId before = rig->connect(client, first);
    // With messages that the server never receives.
    rig.fake.cut();
    for (int i = 0; i < 4; ++i) REQUIRE(client.send(before, 2000));
    client->flush();
    rig->destroy(first);
    rig.fake.restore();
    rig.wait_for_down(client);
    NaNode& second = rig->open({.uri = uri});
    const PeerId after = rig->connect(client, second);
    CHECK(client->info(after)->incarnation == second.incarnation);
    REQUIRE(client.send(after, 100));
    CHECK(rig->pump_until(
        [&] { return second.at(second.peer_of(client.incarnation)).received == 1; }));
}

TEST_CASE("verbs connect: a process that stalls during its connects loses none of them") {
    VerbsRig rig;
    NaNode& server = rig->open();
    std::size_t looks = 0;
    for (bool was_up = false; !was_up; ++looks) {
        INFO("after " << looks << " looks");
        NaNode& client = rig->open({.listens = false});
        const PeerId peer = rig->start_connect(client, server->address());
        for (std::size_t i = 0; i < looks; ++i) {
            client.poll();
            server.poll();
        }
        was_up = client.at(peer).state == weft::test::PeerState::up;
        rig->skip(2700ms);
        REQUIRE(rig->pump_until([&] {
            return client.at(peer).state == weft::test::PeerState::up &&
                   server.peer_of(client.incarnation);
        }));
        CHECK(client.downs.empty());
        rig->destroy(client);
    }
    CHECK(looks > 3);
}
