// The cost of connections over verbs: objects, completions, memory.
#include <memory>

#include "leaks/live_memory.h"
#include "na/address.h"
#include "support/na_rma.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

TEST_CASE("verbs count: two hundred connections that open and close leave no object behind") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    ExposedMemory memory(*rig, server, 4096, Access::read);
    std::vector<std::byte> local(64);
    rig->run_until_idle();
    const FakeCounts before = rig.fake.counts();
    for (std::size_t round = 1; round <= 200; ++round) {
        const PeerId peer = rig->connect(client, server);
        REQUIRE(client.send(peer, 100));
        REQUIRE(run(*rig, client, memory.get(peer, 0, local)) == Code::ok);
        // Alternately by either side.
        if (round % 2 == 0) {
            client.close(peer);
            REQUIRE(rig->pump_until([&] { return server.downs.size() == round / 2; }));
        } else {
            server.close(server.peer_of(client.incarnation));
            REQUIRE(rig->pump_until([&] { return client.downs.size() == round / 2 + 1; }));
        }
        rig->skip(50ms);
    }
    rig->run_until_idle();
    FakeCounts after = rig.fake.counts();
    // A registration may be kept for reuse.
    CHECK(after.regions <= before.regions + 1);
    after.regions = before.regions;
    CHECK(after == before);
}

TEST_CASE("verbs count: the completion queue holds all that all peers may have pending") {
    // As many peers as the endpoint reports, each with all that it may send, while the server does
    // not poll.
    FakeLimits limits;
    limits.completions_max = 512 + 1024 + 32 * 100;
    VerbsRig rig(limits);
    NaNode& server = rig->open({.peers_max = 1000});
    const std::size_t peers = server->limits().peers_max;
    REQUIRE(peers >= 50);
    REQUIRE(peers <= 200);
    constexpr std::size_t per_client = 10;  // The send memory of a client is enough for this many.
    std::vector<NaNode*> clients;
    std::vector<PeerId> ids;
    for (std::size_t i = 0; i < peers; ++i) {
        if (i % per_client == 0) clients.push_back(&rig->open({.listens = false}));
        ids.push_back(rig->start_connect(*clients.back(), server->address()));
        REQUIRE(rig->pump_until(
            [&] { return clients.back()->at(ids.back()).state == test::PeerState::up; }));
    }
    REQUIRE(rig->pump_until([&] { return server.count(test::PeerState::up) == peers; }));
    for (std::size_t i = 0; i < peers; ++i) {
        NaNode& client = *clients[i / per_client];
        while (client.send(ids[i], 8000)) client->flush();
    }
    for (int turn = 0; turn < 50; ++turn) {
        for (NaNode* client : clients) {
            client->poll();
            (*client)->flush();
        }
    }
    CHECK(rig.fake.fullest_queue(0) > 256);
    CHECK(rig.fake.fullest_queue(0) <= rig.fake.queue_room(0));
    // No message was lost.
    CHECK(rig->pump_until([&] {
        std::uint64_t got = 0, sent = 0;
        for (std::size_t i = 0; i < peers; ++i) sent += clients[i / per_client]->at(ids[i]).sent;
        for (std::uint32_t index = 0; index < server->limits().peers_max; ++index) {
            const PeerId id{index, 1};
            if (server->info(id)) got += server.at(id).received;
        }
        return got == sent;
    }));
    CHECK(server.downs.empty());
    for (NaNode* client : clients) CHECK(client->downs.empty());
}

// Bytes of the heap, without those of the fake device itself.
static std::ptrdiff_t own_bytes() {
    const LiveMemory live = live_memory();
    return live.bytes + live.large_bytes - FakeVerbs::own_bytes();
}

TEST_CASE("verbs count: two thousand connected queue pairs cost at most 16 KiB each") {
    constexpr std::uint32_t peers = 2000;
    constexpr std::ptrdiff_t limit = 16 * 1024;
    FakeVerbs fake;
    base::SeededRandom random(1);
    base::Log log{LogLevel::off};
    auto arena = Arena::make(64u << 20);
    const auto provider = make_verbs_provider();
    TimePoint now{};
    const std::ptrdiff_t empty = own_bytes();
    const Address any = *parse_address("verbs://127.0.0.1:0");
    const auto open = [&](const Address* listen, std::uint64_t name) {
        EndpointParts parts{random, log, *arena, {name, name}, "", peers};
        auto endpoint = provider->open(listen, parts, now);
        REQUIRE(endpoint);
        return *std::move(endpoint);
    };
    auto server = open(&any, 1);
    auto client = open(nullptr, 2);
    const std::ptrdiff_t opened = own_bytes();
    const Address to = *parse_address(server->address());
    std::vector<PeerId> at_client, at_server;
    at_client.reserve(peers);
    at_server.reserve(peers);
    const auto turn = [&](Endpoint& endpoint, std::vector<PeerId>& up) {
        Event events[64];
        const std::size_t count = endpoint.poll(events, now);
        for (std::size_t i = 0; i < count; ++i) {
            REQUIRE(events[i].kind == EventKind::peer_up);
            up.push_back(events[i].peer);
        }
        endpoint.flush();
    };
    while (at_client.size() < peers) {
        // A few at a time, because pending peers are limited.
        const std::size_t wanted = std::min<std::size_t>(at_client.size() + 16, peers);
        for (std::size_t i = at_client.size(); i < wanted; ++i) {
            REQUIRE(client->connect(to, now));
        }
        for (int i = 0; i < 10'000 && (at_client.size() < wanted || at_server.size() < wanted);
             ++i) {
            now += 100us;
            turn(*client, at_client);
            turn(*server, at_server);
        }
        REQUIRE(at_client.size() == wanted);
        REQUIRE(at_server.size() == wanted);
    }
    CHECK(fake.counts().pairs >= 2 * static_cast<int>(peers));
#ifndef __SANITIZE_ADDRESS__
    const std::ptrdiff_t each = (own_bytes() - opened) / (2 * peers);
    const std::ptrdiff_t with_endpoints = (own_bytes() - empty) / (2 * peers);
    INFO("bytes of ours per connected queue pair: " << each << ", with all that the endpoints have "
                                                    << with_endpoints);
    CHECK(each > 0);
    CHECK(with_endpoints <= limit);
    // Message memory is not on the heap.
    const auto mapped = static_cast<std::ptrdiff_t>(fake.locked_bytes() / (2 * peers));
    CHECK(mapped > 0);
    CHECK(with_endpoints + mapped <= limit);
#else
    (void)empty, (void)opened, (void)limit;
#endif
    client.reset();
    server.reset();
    CHECK(fake.counts() == FakeCounts{});
    CHECK(fake.complaints().empty());
}
