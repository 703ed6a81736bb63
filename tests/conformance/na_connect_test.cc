// Connections: how they open, the information about them, and the single way in which each ends.
#include "na/address.h"
#include "na/connect_pacer.h"
#include "support/na_rig.h"
#include "support/open_files.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

// True when all peers of `server` are down, or when the transport does not report that (noted).
static bool is_empty(NaRig& rig, NaNode& server) {
    const bool reported = server->caps().reports_peer_death;
    const bool empty = rig.pump_until([&] { return server.count(PeerState::up) == 0; },
                                      reported ? test_timeout : 500ms);
    if (empty || reported) return empty;
    note_capability(rig.wire.scheme, "a peer that ends while connecting may stay up unnoticed");
    return true;
}

CONFORMANCE("a provider reports its limits and capabilities") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& node = rig.open();
    const Limits& limits = node->limits();
    CHECK(node->scheme() == rig.wire.scheme);
    CHECK(node->scheme() == rig.wire.provider->scheme());
    CHECK(limits.message_bytes_max > limits.eager_bytes_max);
    CHECK(limits.eager_bytes_max >= 4096);
    CHECK(limits.peers_max >= 1);
    if (rig.caps().rma) {
        CHECK(limits.rma_bytes_max >= 64 * 1024);
        CHECK(limits.rma_depth >= 1);
    }
    CHECK((node->wait_fd() >= 0) == rig.caps().wait_fd);
    const std::pair<const char*, bool> abilities[] = {
        {"put and get", rig.caps().rma},
        {"exposing private memory", rig.caps().rma_private},
        {"checking each access itself", rig.caps().rma_checked},
        {"sleeping on a descriptor", rig.caps().wait_fd},
        {"reporting the death of a peer by itself", rig.caps().reports_peer_death},
        {"fencing a region while peers live", rig.caps().fences_region},
        {"fencing all regions by its own end", rig.caps().fenced_by_end},
        {"delivering sent messages after its end", rig.caps().sent_survives},
        {"one address for several contexts", rig.caps().steers},
    };
    for (const auto& [what, can] : abilities) {
        if (!can) note_capability(rig.wire.scheme, std::string("no ") + what);
    }
}

CONFORMANCE("both sides of a connection get address and incarnation of the peer") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    CHECK_FALSE(pair.a.at(pair.ab).incoming);
    CHECK(pair.b.at(pair.ba).incoming);
    const PeerInfo* of_b = pair.a->info(pair.ab);
    const PeerInfo* of_a = pair.b->info(pair.ba);
    REQUIRE(of_b);
    REQUIRE(of_a);
    CHECK(of_b->uri == pair.b->address());
    CHECK(of_b->incarnation == pair.b.incarnation);
    CHECK(of_a->incarnation == pair.a.incarnation);
    CHECK(of_a->uri == pair.a->address());
    const std::size_t message_max =
        std::min(pair.a->limits().message_bytes_max, pair.b->limits().message_bytes_max);
    CHECK(of_b->message_bytes_max == message_max);
    CHECK(of_a->message_bytes_max == message_max);
    CHECK(of_b->eager_bytes_max <= pair.b->limits().eager_bytes_max);
    CHECK(of_b->eager_bytes_max >= 4096);
}

CONFORMANCE("an endpoint that does not listen connects and has no address") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    NaNode& client = rig.open({.listens = false});
    CHECK(client->address().empty());
    CHECK_FALSE(server->address().empty());
    rig.connect(client, server);
    CHECK(server.peer_of(client.incarnation));
}

CONFORMANCE("an endpoint connects to itself") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& node = rig.open();
    const PeerId out = rig.start_connect(node, node->address());
    REQUIRE(rig.pump_until([&] { return node.count(PeerState::up) == 2; }));
    REQUIRE(node.send(out, 64));
    CHECK(rig.pump_until([&] {
        PeerId in;
        for (std::uint32_t index = 0; index < 4; ++index) {
            for (std::uint32_t generation = 1; generation < 4; ++generation) {
                const PeerId peer{index, generation};
                if (peer != out && node->info(peer)) in = peer;
            }
        }
        return in && node.at(in).received == 1;
    }));
}

CONFORMANCE("a refused connection is reported once, as UNAVAILABLE and with a reason") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& gone = rig.open();
    const std::string uri = gone->address();
    rig.destroy(gone);
    NaNode& node = rig.open();
    const PeerId peer = rig.start_connect(node, uri);
    CHECK(node->info(peer) == nullptr);
    CHECK(node->reserve(peer, 8) == nullptr);
    REQUIRE(rig.pump_until([&] { return !node.downs.empty(); }, promised(3s)));
    rig.run_until_idle();
    REQUIRE(node.downs.size() == 1);
    CHECK(node.downs[0].peer == peer);
    CHECK(node.downs[0].code == Code::unavailable);
    CHECK_FALSE(node.downs[0].error.empty());
    CHECK(node->info(peer) == nullptr);
}

CONFORMANCE("an address of another transport is refused at once") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& node = rig.open();
    const Address other =
        rig.wire.scheme == "sm" ? Address{"sim", "x", "", 0} : Address{"sm", "x", "", 0};
    const Result<PeerId> peer = node->connect(other, rig.now());
    REQUIRE_FALSE(peer.ok());
    CHECK(peer.status().code() == Code::invalid_argument);
    CHECK_FALSE(peer.status().text().empty());
}

CONFORMANCE("the name of a live endpoint is refused, and that of a closed one can be used") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& first = rig.open();
    const std::string uri = first->address();
    auto second = rig.try_open({.uri = uri}, {1, 2});
    REQUIRE_FALSE(second.ok());
    INFO(second.status().text());
    CHECK(second.status().code() == Code::already_exists);
    CHECK(second.status().text().find(uri.substr(uri.find("://") + 3)) != std::string::npos);
    // The refusal has no effect on other peers.
    rig.connect(rig.open({.listens = false}), first);
    rig.destroy(first);
    CHECK(rig.try_open({.uri = uri}, {1, 2}).ok());
}

CONFORMANCE("close gives the other side exactly one peer_down and the closing side none") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    pair.a.close(pair.ab);
    CHECK(pair.a->info(pair.ab) == nullptr);
    REQUIRE(rig.pump_until([&] { return !pair.b.downs.empty(); }));
    rig.run_until_idle();
    CHECK(pair.a.downs.empty());
    REQUIRE(pair.b.downs.size() == 1);
    CHECK(pair.b.downs[0].peer == pair.ba);
    CHECK_FALSE(pair.b.downs[0].error.empty());
    CHECK(pair.b->info(pair.ba) == nullptr);
}

CONFORMANCE("after close the other side gets a prefix of the messages, then peer_down") {
    for (int turns = 0; turns < 4; ++turns) {
        auto rig = NaRig::on<TestType>();
        if (!rig.usable()) return;
        NaPair pair(rig);
        for (int i = 0; i < 5; ++i) REQUIRE(pair.a.send(pair.ab, 100));
        pair.a->flush();
        for (int i = 0; i < turns; ++i) rig.pump();
        pair.a.close(pair.ab);
        REQUIRE(rig.pump_until([&] { return !pair.b.downs.empty(); }));
        rig.run_until_idle();
        CHECK(pair.b.at(pair.ba).received <= 5);
        CHECK(pair.b.downs.size() == 1);
    }
}

CONFORMANCE("no message of a closed peer is delivered, even if it has arrived") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    for (int i = 0; i < 8; ++i) {
        REQUIRE(pair.a.send(pair.ab, 100));
        pair.a->flush();
    }
    const TimePoint end = rig.now() + test_timeout;
    while (pair.b.at(pair.ba).received < 3 && rig.now() < end) {
        pair.a.poll();
        rig.step_time();
        pair.b.poll(1);
    }
    const std::uint64_t before = pair.b.at(pair.ba).received;
    REQUIRE(before >= 3);
    pair.b.close(pair.ba);
    // judge() fails the test for any further event.
    rig.run_until_idle();
    CHECK(pair.b.at(pair.ba).received == before);
    CHECK(pair.b.downs.empty());
}

CONFORMANCE("both sides may close at once, and neither gets a peer_down") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    pair.a.close(pair.ab);
    pair.b.close(pair.ba);
    rig.run_until_idle();
    CHECK(pair.a.downs.empty());
    CHECK(pair.b.downs.empty());
}

CONFORMANCE("closing before the connection is up leaves no peer on either side") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    NaNode& client = rig.open({.listens = false});
    for (int i = 0; i < 5; ++i) {
        const PeerId peer = rig.start_connect(client, server->address());
        client.close(peer);
        CHECK(client->info(peer) == nullptr);
        rig.run_until_idle();
    }
    CHECK(client.downs.empty());
    // Every peer that came up at the server also went down.
    REQUIRE(is_empty(rig, server));
    rig.connect(client, server);
}

CONFORMANCE("an endpoint that ends while it connects leaves no peer at the server") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    for (int turns = 0; turns < 6; ++turns) {
        NaNode& client = rig.open({.listens = false});
        rig.start_connect(client, server->address());
        for (int i = 0; i < turns; ++i) rig.pump();
        rig.destroy(client);
        rig.run_until_idle();
    }
    CHECK(is_empty(rig, server));
}

CONFORMANCE("a stale peer id is refused everywhere, and does not affect a newer peer") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaPair pair(rig);
    pair.a.close(pair.ab);
    const PeerId again = rig.connect(pair.a, pair.b);
    CHECK(again != pair.ab);
    const PeerId forged[] = {pair.ab,
                             {},
                             {again.index, again.generation + 1},
                             {again.index + 1000, again.generation},
                             {0xffffffff, 0xffffffff}};
    for (const PeerId& stale : forged) {
        CHECK(pair.a->info(stale) == nullptr);
        CHECK(pair.a->reserve(stale, 64) == nullptr);
        pair.a->close(stale);
    }
    if (rig.caps().rma) {
        Buffer local = rig.allocate(64);
        RmaItem item;
        item.peer = pair.ab;
        item.local = local.bytes();
        const std::uint64_t cookie = pair.a.post(item);
        REQUIRE(cookie != 0);
        REQUIRE(rig.pump_until([&] { return pair.a.rma_done.contains(cookie); }));
        CHECK(pair.a.rma_done[cookie] == Code::unavailable);
    }
    rig.run_until_idle();
    REQUIRE(pair.a.send(again, 64));
    pair.a->flush();
    const PeerId seen = pair.b.peer_of(pair.a.incarnation);
    CHECK(rig.pump_until([&] { return pair.b.at(seen).received == 1; }));
}

CONFORMANCE("the end of an endpoint gives one peer_down at each of its peers") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    NaNode& one = rig.open();
    NaNode& two = rig.open({.listens = false});
    const PeerId from_one = rig.connect(one, server);
    rig.connect(two, server);
    const PeerId to_one = rig.connect(server, one);
    rig.destroy(server);
    REQUIRE(rig.pump_until([&] { return one.downs.size() >= 2 && !two.downs.empty(); }));
    rig.run_until_idle();
    CHECK(one.downs.size() == 2);
    CHECK(two.downs.size() == 1);
    CHECK(one->info(from_one) == nullptr);
    CHECK(to_one);
}

CONFORMANCE("a new peer takes no index of a peer before the poll after its peer_down") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    NaNode& other = rig.open();
    NaNode* const clients[] = {&rig.open({.listens = false}), &rig.open({.listens = false})};
    for (NaNode* client : clients) rig.connect(*client, server);
    for (NaNode* client : clients) rig.destroy(*client);
    // A batch of events ends with a peer_down: one end is reported, the other one waits.
    REQUIRE(rig.pump_until([&] { return server.count(PeerState::down) != 0; }));
    const PeerId third = rig.start_connect(server, other->address());  // NaNode checks its index.
    CHECK(rig.pump_until([&] { return server.at(third).state == PeerState::up; }));
    CHECK(rig.pump_until([&] { return server.count(PeerState::down) == 2; }));
}

CONFORMANCE("a successor at the same address is another incarnation") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    NaNode& client = rig.open({.listens = false});
    const std::string uri = server->address();
    const PeerId before = rig.connect(client, server);
    rig.destroy(server);
    REQUIRE(rig.pump_until([&] { return !client.downs.empty(); }));
    NaNode& successor = rig.open({.uri = uri});
    CHECK(successor->address() == uri);
    const PeerId after = rig.connect(client, successor);
    CHECK(after != before);
    CHECK(client->info(after)->incarnation == successor.incarnation);
    CHECK(client->info(before) == nullptr);
}

CONFORMANCE("an endpoint accepts at most peers_max peers, and closed ones free their slots") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open({.peers_max = 2});
    CHECK(server->limits().peers_max == 2);
    NaNode& one = rig.open({.listens = false});
    NaNode& two = rig.open({.listens = false});
    NaNode& late = rig.open();
    const PeerId from_one = rig.connect(one, server);
    rig.connect(two, server);
    // One more peer connects to it.
    rig.start_connect(late, server->address());
    REQUIRE(rig.pump_until([&] { return !late.downs.empty(); }));
    CHECK(late.downs[0].code == Code::resource_exhausted);
    CHECK_FALSE(late.downs[0].error.empty());
    CHECK(server.count(PeerState::up) == 2);
    // And it connects to one more peer.
    Result<Address> address = parse_address(late->address());
    const Result<PeerId> refused = server->connect(*address, rig.now());
    REQUIRE_FALSE(refused.ok());
    CHECK(refused.status().code() == Code::resource_exhausted);
    one.close(from_one);
    REQUIRE(rig.pump_until([&] { return server.downs.size() == 1; }));
    rig.connect(late, server);
    CHECK(server.count(PeerState::up) == 2);
}

CONFORMANCE("connects that fail leak no descriptor, slot or pacer turn") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    constexpr std::size_t many = ConnectPacer::half_open_max + 8;
    NaNode& gone = rig.open();
    const std::string unserved = gone.endpoint->address();
    rig.destroy(gone);
    NaNode& server = rig.open({.peers_max = many});
    NaNode& client = rig.open({.listens = false, .peers_max = many});
    const auto start_all = [&](const std::string& uri) {
        std::vector<PeerId> peers;
        // On sm a slot is free only when the other side has disconnected, too.
        const auto has_all = [&] {
            while (peers.size() < many) {
                const Result<PeerId> peer = rig.try_connect(client, uri);
                if (!peer) return false;
                peers.push_back(*peer);
            }
            return true;
        };
        REQUIRE(rig.pump_until(has_all));
        return peers;
    };
    const auto none_left = [&] {
        return client.count(PeerState::connecting) + client.count(PeerState::up) == 0;
    };
    // libfabric closes descriptors at a later time.
    const bool gives_back = !rig.wire.scheme.starts_with("ofi");
    int before = 0;
    for (int round = 0; round < 3; ++round) {
        start_all(unserved);
        REQUIRE(rig.pump_until(none_left));
        const std::vector<PeerId> closed = start_all(server->address());
        for (int turns = 0; turns < round; ++turns) rig.pump();
        for (const PeerId peer : closed) client.close(peer);
        rig.run_until_idle();
        NaNode& brief = rig.open({.peers_max = many});
        start_all(brief->address());
        for (int turns = 0; turns < 3 * round; ++turns) rig.pump();
        rig.destroy(brief);
        REQUIRE(rig.pump_until(none_left));
        REQUIRE(is_empty(rig, server));
        rig.run_until_idle();
        if (round == 0) before = open_files();
        if (gives_back) CHECK(rig.pump_until([&] { return open_files() <= before; }));
    }
    // Refused ones are tried again: on verbs the unfinished handshake of a client that has gone
    // keeps its place at the server for a moment.
    const auto all_up = [&] {
        const std::size_t connecting = client.count(PeerState::connecting);
        for (std::size_t has = client.count(PeerState::up) + connecting; has < many; ++has)
            if (!rig.try_connect(client, server->address())) break;
        return client.count(PeerState::up) == many;
    };
    REQUIRE(rig.pump_until(all_up));
    CHECK(rig.pump_until([&] { return server.count(PeerState::up) == many; }));
}

CONFORMANCE("peers connect and disconnect two hundred times") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    NaNode& client = rig.open({.listens = false});
    const int rounds = rig.caps().virtual_time ? 200 : 50;
    for (int round = 0; round < rounds; ++round) {
        const PeerId peer = rig.connect(client, server);
        REQUIRE(client.send(peer, 100));
        client->flush();
        const PeerId seen = server.peer_of(client.incarnation);
        REQUIRE(rig.pump_until([&] { return server.at(seen).received == 1; }));
        client.close(peer);
        REQUIRE(rig.pump_until(
            [&] { return server.downs.size() == static_cast<std::size_t>(round + 1); }));
    }
}

CONFORMANCE("a process that stalls during its connects loses none of them") {
    auto rig = NaRig::on<TestType>();
    if (!rig.usable()) return;
    NaNode& server = rig.open();
    for (int looks = 0; looks < 8; ++looks) {
        INFO("after " << looks << " looks");
        NaNode& client = rig.open({.listens = false});
        const PeerId peer = rig.start_connect(client, server->address());
        for (int i = 0; i < looks; ++i) {
            client.poll();
            server.poll();
        }
        rig.skip(2700ms);
        REQUIRE(rig.pump_until([&] {
            return client.at(peer).state == PeerState::up && server.peer_of(client.incarnation);
        }));
        CHECK(client.downs.empty());
        rig.destroy(client);
    }
}
