// Several contexts at one address: which context a connection reaches, and that a blocked one
// delays no other.
#include "na/address.h"
#include "support/na_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using namespace weft::test::wires;

// True: the transport listens for several contexts; otherwise that is noted.
static bool steers(NaRig& rig) {
    if (!rig.usable()) return false;
    const NaNode& node = rig.open({.listens = false});
    if (node.endpoint->caps().steers) return true;
    note_capability(rig.wire.scheme, "one address for several contexts");
    return false;
}

static bool is_up(NaNode& node, PeerId peer) { return node.at(peer).state == PeerState::up; }

static std::size_t peers_up(const std::vector<NaNode*>& nodes) {
    std::size_t up = 0;
    for (const NaNode* node : nodes) up += node->count(PeerState::up);
    return up;
}

CONFORMANCE("a connection reaches the context that it names, each time") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(4);
    NaNode& client = rig.open({.listens = false});
    const std::string uri = (*server[0])->address();
    for (const NaNode* node : server) CHECK(node->endpoint->address() == uri);
    const int connections = rig.wire.scheme == "verbs" ? 200 : 1000;  // 0.1 s each on Soft-RoCE.
    for (int i = 0; i < connections; ++i) {
        const auto context = static_cast<std::uint16_t>(i % 4);
        const PeerId peer = rig.start_connect(client, uri, static_cast<std::uint16_t>(context + 1));
        REQUIRE(rig.pump_until([&] { return is_up(client, peer) && peers_up(server) == 1; }));
        REQUIRE(client->info(peer)->contexts == 4);
        REQUIRE(client->info(peer)->context == context);
        REQUIRE(server[context]->count(PeerState::up) == 1);
        client.close(peer);
        REQUIRE(rig.pump_until([&] { return peers_up(server) == 0; }));
    }
}

// A context that is not polled would not answer the owners of exposed memory either.
CONFORMANCE("no context accepts before all of them are polled") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    std::shared_ptr<Door> door;
    const std::vector<NaNode*> server = rig.open_contexts(2, {.closed = &door});
    NaNode& client = rig.open({.listens = false});
    const PeerId peer = rig.start_connect(client, (*server[0])->address(), 1);
    rig.pass(50ms);
    CHECK_FALSE(is_up(client, peer));
    CHECK(peers_up(server) == 0);
    door->start();
    CHECK(rig.pump_until([&] { return is_up(client, peer); }));
    CHECK(client->info(peer)->context == 0);
}

CONFORMANCE("a connection that names a context which the listener does not have reaches any") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(2);
    NaNode& client = rig.open({.listens = false});
    for (const std::uint16_t context : {3, 64, 65535}) {
        const PeerId peer = rig.start_connect(client, (*server[0])->address(), context);
        REQUIRE(rig.pump_until([&] { return is_up(client, peer); }));
        CHECK(client->info(peer)->context < 2);
    }
}

CONFORMANCE("64 connections that name no context are 15 to 17 on each of 4") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(4);
    std::vector<NaNode*> clients;
    for (int i = 0; i < 16; ++i) {
        NaNode& client = rig.open({.listens = false});
        for (int k = 0; k < 4; ++k) rig.start_connect(client, (*server[0])->address());
        clients.push_back(&client);
    }
    REQUIRE(rig.pump_until([&] { return peers_up(server) == 64 && peers_up(clients) == 64; }));
    for (const NaNode* node : server) {
        CHECK(node->count(PeerState::up) >= 15);
        CHECK(node->count(PeerState::up) <= 17);
    }
}

// More of them than an endpoint makes at a time, than the listener holds for a context, and than
// both.
CONFORMANCE("connects that wait for a blocked context do not keep the next one waiting") {
    for (const std::uint16_t blocked : {1, 2}) {
        auto rig = NaRig::on<TestType>();
        if (!steers(rig)) return;
        CAPTURE(blocked);
        const std::vector<NaNode*> server = rig.open_contexts(2, {.peers_max = 512});
        // It knows nothing of the listener.
        NaNode& client = rig.open({.listens = false, .peers_max = 512});
        const std::string uri = (*server[0])->address();
        for (NaNode* node : server) node->is_blocked = true;
        for (int i = 0; i < 140; ++i) rig.start_connect(client, uri, blocked);
        const auto free = static_cast<std::uint16_t>(3 - blocked);
        const PeerId other = rig.start_connect(client, uri, free);
        rig.pass(200ms);  // A slow answer.
        server[free - 1]->is_blocked = false;
        REQUIRE(rig.pump_until([&] { return is_up(client, other); }, 2s));
        CHECK(client->info(other)->context == free - 1);
        CHECK(client.count(PeerState::up) == 1);
    }
}

CONFORMANCE("a blocked context delays only the connections that name it") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(4);
    NaNode& client = rig.open({.listens = false});
    const std::string uri = (*server[0])->address();
    // Before: a client waits for a limited time.
    std::vector<NaNode*> others;
    for (int i = 0; i < 8; ++i) others.push_back(&rig.open({.listens = false}));
    server[1]->is_blocked = true;
    const PeerId to_blocked = rig.start_connect(client, uri, 2);
    for (const std::uint16_t context : {1, 3, 4}) {
        const PeerId peer = rig.start_connect(client, uri, context);
        REQUIRE(rig.pump_until([&] { return is_up(client, peer); }, 1s));
    }
    CHECK_FALSE(is_up(client, to_blocked));
    // It has not taken a connection for a second: no other is placed there.
    rig.pass(1100ms);
    for (NaNode* other : others) {
        const PeerId peer = rig.start_connect(*other, uri);
        REQUIRE(rig.pump_until([&] { return is_up(*other, peer); }, 1s));
        CHECK((*other)->info(peer)->context != 1);
    }
    server[1]->is_blocked = false;
    CHECK(rig.pump_until([&] { return is_up(client, to_blocked); }));
    CHECK(client->info(to_blocked)->context == 1);
}

CONFORMANCE("other contexts accept in place of blocked ones") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(8);
    NaNode& client = rig.open({.listens = false});
    const std::string uri = (*server[0])->address();
    for (const std::size_t k : {0, 2, 4, 6}) server[k]->is_blocked = true;
    rig.pass(2500ms);
    const PeerId peer = rig.start_connect(client, uri, 2);
    REQUIRE(rig.pump_until([&] { return is_up(client, peer); }, 5s));
    CHECK(client->info(peer)->context == 1);
    for (const std::size_t k : {0, 2, 4, 6}) server[k]->is_blocked = false;
    const PeerId to_first = rig.start_connect(client, uri, 1);
    REQUIRE(rig.pump_until([&] { return is_up(client, to_first); }, 5s));
    CHECK(client->info(to_first)->context == 0);
}

CONFORMANCE("an address of several contexts has one listener, and is free after the last ends") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    std::vector<NaNode*> server = rig.open_contexts(3);
    const std::string uri = (*server[0])->address();
    const Address address = *parse_address(uri);
    const auto is_taken = [&] {
        const auto alone = rig.try_open({.uri = uri}, {1, 1});
        return !alone && alone.status().code() == Code::already_exists;
    };
    CHECK(is_taken());
    Result<std::shared_ptr<Door>> second = rig.wire.provider->open_door(address, {}, rig.now());
    REQUIRE_FALSE(second);
    CHECK(second.status().code() == Code::already_exists);
    rig.destroy(*server[0]);
    rig.destroy(*server[2]);
    CHECK(is_taken());
    rig.destroy(*server[1]);
    CHECK(rig.try_open({.uri = uri}, {1, 1}));
}

CONFORMANCE("messages and transfers of a connection stay on its context") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(4);
    NaNode& client = rig.open({.listens = false});
    for (std::uint16_t context = 0; context < 4; ++context) {
        NaNode& at = *server[context];
        const PeerId peer =
            rig.start_connect(client, at->address(), static_cast<std::uint16_t>(context + 1));
        REQUIRE(
            rig.pump_until([&] { return is_up(client, peer) && at.peer_of(client.incarnation); }));
        for (int i = 0; i < 10; ++i) REQUIRE(client.send(peer, 100));
        REQUIRE(rig.pump_until([&] { return at.received() == 10; }));
        REQUIRE(at.send(at.peer_of(client.incarnation), 64));
        REQUIRE(rig.pump_until([&] { return client.at(peer).received == 1; }));
        // Both sides initiate a transfer.
        for (const bool by_client : {true, false}) {
            NaNode& owner = by_client ? at : client;
            NaNode& initiator = by_client ? client : at;
            const Buffer memory = rig.allocate(4096);
            const Buffer local = rig.allocate(4096);
            const std::uint32_t region = context * 2u + (by_client ? 0 : 1);
            fill_random(memory.bytes(), rig.random);
            const auto exposed = owner->expose({region, 1, 77, memory.bytes(), Access::read});
            REQUIRE(exposed);
            RmaItem item;
            item.fabric = *exposed;
            item.peer = by_client ? peer : at.peer_of(client.incarnation);
            item.region = region;
            item.generation = 1;
            item.key = 77;
            item.local = local.bytes();
            const std::uint64_t cookie = initiator.post(item);
            REQUIRE(cookie != 0);
            REQUIRE(rig.pump_until([&] { return initiator.rma_done.contains(cookie); }));
            CHECK(initiator.rma_done[cookie] == Code::ok);
            CHECK(std::ranges::equal(local.bytes(), memory.bytes()));
        }
    }
}

CONFORMANCE("a context that ends takes its own connections with it, and none of the others") {
    auto rig = NaRig::on<TestType>();
    if (!steers(rig)) return;
    const std::vector<NaNode*> server = rig.open_contexts(2);
    NaNode& client = rig.open({.listens = false});
    const std::string uri = (*server[0])->address();
    const PeerId to_first = rig.start_connect(client, uri, 1);
    const PeerId to_second = rig.start_connect(client, uri, 2);
    REQUIRE(rig.pump_until([&] { return is_up(client, to_first) && is_up(client, to_second); }));
    // A connection is on its way to the context that ends.
    server[1]->is_blocked = true;
    const PeerId passed = rig.start_connect(client, uri, 2);
    rig.pump_until([&] { return !server[1]->passed.empty(); }, 1s);
    REQUIRE_FALSE(server[1]->passed.empty());
    rig.destroy(*server[1]);
    server[1]->is_blocked = false;
    REQUIRE(rig.pump_until([&] { return client.at(to_second).state == PeerState::down; }));
    CHECK(is_up(client, to_first));
    CHECK_FALSE(is_up(client, passed));
    CHECK(rig.pump_until([&] {
        const PeerId again = rig.start_connect(client, uri, 1);
        return rig.pump_until([&] { return is_up(client, again); }, 1s);
    }));
}
