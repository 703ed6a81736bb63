// Several contexts of one runtime at a device: what they share, and what fails for all or for one.
#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "na/address.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;
using verbs::ConnectData;
using Raw = VerbsRawPeer;

namespace {

// A runtime with several contexts at one address. Its endpoints are opened first.
struct Server {
    VerbsRig rig;
    std::vector<NaNode*> contexts;

    explicit Server(std::uint16_t count, OpenOptions options = {})
        : contexts(rig->open_contexts(count, options)) {}
    NaNode& at(std::size_t context) { return *contexts[context]; }
    std::string uri() { return at(0)->address(); }
    std::size_t up() const {
        std::size_t all = 0;
        for (const NaNode* node : contexts) all += node->count(PeerState::up);
        return all;
    }
    // A client of its own with a connection to the context; 0: any.
    std::pair<NaNode*, PeerId> connect(std::uint16_t wanted) {
        NaNode& client = rig->open({.listens = false});
        const std::size_t before = up();
        const PeerId peer = rig->start_connect(client, uri(), wanted);
        REQUIRE(rig->pump_until(
            [&] { return client.at(peer).state == PeerState::up && up() == before + 1; }));
        return {&client, peer};
    }
    bool is_answered(Raw& raw) {
        return rig->pump_until([&] {
            raw.step();
            return raw.state() != Raw::State::asking;
        });
    }
};

Incarnation numbered(std::uint64_t number) { return {77, number}; }

}  // namespace

TEST_CASE("verbs contexts: an exposed region has one registration and one key for all contexts") {
    Server server(4);
    FakeVerbs& fake = server.rig.fake;
    const FakeCounts before = fake.counts();
    CHECK(before.contexts == 1);
    const std::uint64_t registered = fake.registrations();
    const std::uint64_t deregistered = fake.deregistrations();
    const Buffer memory = server.rig->allocate(1 << 20);
    const Exposure exposure{2000, 1, 77, memory.bytes(), Access::read_write};
    std::vector<FabricKey> keys;
    for (NaNode* node : server.contexts) keys.push_back((*node)->expose(exposure).value());
    for (const FabricKey& key : keys) CHECK(key.key == keys[0].key);
    CHECK(fake.registrations() == registered + 1);
    // Each context's peers reach it by that key.
    for (std::uint16_t k = 0; k < 4; ++k) {
        const std::pair<NaNode*, PeerId> to = server.connect(static_cast<std::uint16_t>(k + 1));
        NaNode& client = *to.first;
        const Buffer local = server.rig->allocate(4096);
        fill_random(memory.bytes(), server.rig->random);
        RmaItem item;
        item.peer = to.second;
        item.fabric = keys[0];
        item.offset = k * 8192u;
        item.local = local.bytes();
        const std::uint64_t cookie = client.post(item);
        REQUIRE(server.rig->pump_until([&] { return client.rma_done.contains(cookie); }));
        CHECK(client.rma_done[cookie] == Code::ok);
        CHECK(std::ranges::equal(local.bytes(), memory.bytes().subspan(k * 8192u, 4096)));
    }
    CHECK(fake.deregistrations() == deregistered);
    for (std::size_t k = 0; k < 4; ++k) {
        CHECK(fake.deregistrations() == deregistered);
        server.at(k).fence(2000);
        REQUIRE(server.rig->pump_until([&] { return server.at(k).fenced.contains(2000); }));
    }
    CHECK(fake.deregistrations() == deregistered + 1);
}

TEST_CASE("verbs contexts: regions with the same number but other memory share nothing") {
    Server server(2);
    const Buffer one = server.rig->allocate(4096), other = server.rig->allocate(4096);
    const std::uint64_t registered = server.rig.fake.registrations();
    const auto first = server.at(0)->expose({5, 1, 77, one.bytes(), Access::read});
    const auto second = server.at(1)->expose({5, 1, 77, other.bytes(), Access::read});
    REQUIRE((first && second));
    CHECK(first->key != second->key);
    CHECK(server.rig.fake.registrations() == registered + 2);
    // An endpoint that ends ends its registrations.
    server.rig->destroy(server.at(0));
    server.rig->destroy(server.at(1));
}

TEST_CASE(
    "verbs contexts: the last fence of a region waits for ever if its registration can't be "
    "ended") {
    Server server(2);
    const Buffer memory = server.rig->allocate(4096);
    const Exposure exposure{2000, 1, 77, memory.bytes(), Access::read};
    for (NaNode* node : server.contexts) REQUIRE((*node)->expose(exposure));
    server.rig.fake.fail_deregistrations(EIO);
    server.at(1).fence(2000);
    REQUIRE(server.rig->pump_until([&] { return server.at(1).fenced.contains(2000); }));
    server.at(0).fence(2000);
    server.rig->run_until_idle();
    CHECK_FALSE(server.at(0).fenced.contains(2000));
}

TEST_CASE("verbs contexts: each has a share of the receive buffers, 64 or more") {
    for (const auto& [contexts, buffers] :
         {std::pair<std::uint16_t, std::size_t>{1, 512}, {4, 128}, {16, 64}}) {
        Server server(contexts);
        (void)server.connect(0);
        // One is in use for the hello of the client, until the next poll.
        CHECK(server.rig.fake.receives_posted(0) >= buffers - 1);
        CHECK(server.rig.fake.receives_posted(0) <= buffers);
    }
}

TEST_CASE("verbs contexts: a device that fails takes the connections of all contexts with it") {
    for (const bool is_removed : {false, true}) {
        Server server(4);
        for (std::uint16_t k = 1; k <= 4; ++k) (void)server.connect(k);
        std::array<Raw, 4> later;
        if (is_removed) {
            server.rig.fake.remove_device();
        } else {
            server.rig.fake.break_device();
        }
        REQUIRE(server.rig->pump_until([&] { return server.up() == 0; }));
        for (NaNode* node : server.contexts) {
            REQUIRE(node->downs.size() == 1);
            CHECK(node->downs[0].code == Code::unavailable);
        }
        // No context accepts, wherever the connection is meant to go.
        for (std::uint16_t k = 1; k <= 4; ++k) {
            Raw& raw = later[k - 1u];
            raw.connect(server.uri(), words_of({numbered(k), 0, 4, k}));
            REQUIRE(server.is_answered(raw));
            const auto why = verbs::decode_rejection(raw.theirs);
            REQUIRE(why);
            says(std::string(why->text()), "unusable");
        }
    }
}

TEST_CASE("verbs contexts: a completion queue that overflows is the end of its context alone") {
    Server server(3);
    (void)server.connect(2);
    server.rig.fake.overflow(0);  // The queue of the only connection.
    REQUIRE(server.rig->pump_until([&] { return server.up() == 0; }));
    REQUIRE(server.at(1).downs.size() == 1);
    says(server.at(1).downs[0].error, "unusable");
    (void)server.connect(1);
    (void)server.connect(3);
    Raw raw;
    raw.connect(server.uri(), words_of({numbered(1), 0, 4, 2}));
    REQUIRE(server.is_answered(raw));
    CHECK(raw.state() == Raw::State::refused);
}

TEST_CASE("verbs contexts: a request that can't be moved is refused, and its client tries again") {
    Server server(4);
    for (int failures = 1; failures <= 3; ++failures) {
        server.rig.fake.fail_migrations(failures);
        for (std::uint16_t k = 1; k <= 4; ++k) (void)server.connect(k);
    }
    CHECK(server.up() == 12);
}

TEST_CASE(
    "verbs contexts: a request that names an impossible context reaches any, with its place") {
    Server server(4, {.peers_max = 8});
    // All places are given back: there are 8.
    for (std::uint64_t i = 0; i < 40; ++i) {
        Raw raw;
        ConnectData data{numbered(i), 0, 4};
        data.wanted = 65535;
        data.context = 65535;
        raw.connect(server.uri(), words_of(data));
        REQUIRE(server.is_answered(raw));
        REQUIRE(raw.state() == Raw::State::connected);
        raw.send_hello(numbered(i));
        REQUIRE(server.rig->pump_until([&] { return server.up() == 1; }));
        raw.hang_up();
        REQUIRE(server.rig->pump_until([&] { return server.up() == 0; }));
    }
}

TEST_CASE("verbs contexts: unfinished handshakes are bounded at each context, and give way") {
    Server server(4);
    // Four contexts have 16 places each; the bound of clients that name one is above that.
    std::vector<std::unique_ptr<Raw>> halves;
    for (std::uint64_t i = 0; i < 24; ++i) {
        halves.push_back(std::make_unique<Raw>());
        halves.back()->connect(server.uri(), words_of({numbered(i), 0, 4, 3}));
        REQUIRE(server.is_answered(*halves.back()));
        // Without a place it is refused as busy, or an older one has given its place to it.
        if (halves.back()->state() != Raw::State::refused) continue;
        CHECK(verbs::decode_rejection(halves.back()->theirs)->code() == busy_code);
    }
    const auto open = [&] {
        for (const auto& half : halves) half->step();
        return std::ranges::count_if(
            halves, [](const auto& half) { return half->state() == Raw::State::connected; });
    };
    REQUIRE(server.rig->pump_until([&] { return open() <= 16; }));
    CHECK(open() == 16);
    (void)server.connect(2);  // Other contexts have places.
    server.rig->pass(100ms);
    (void)server.connect(3);  // The oldest one without a hello gives way.
    REQUIRE(server.rig->pump_until([&] { return open() <= 15; }));
}

TEST_CASE("verbs contexts: a blocked context takes at most 64 requests, and ends those given up") {
    Server server(2, {.peers_max = 256});
    server.at(1).is_blocked = true;
    std::vector<std::unique_ptr<Raw>> waiting;
    for (std::uint64_t i = 0; i < 64; ++i) {
        waiting.push_back(std::make_unique<Raw>());
        Raw& raw = *waiting.back();
        raw.connect(server.uri(), words_of({numbered(i), 0, 4, 2}));
        REQUIRE(server.rig->pump_until([&] {
            raw.step();
            return server.at(1).passed.size() == i + 1;
        }));
    }
    Raw next;
    next.connect(server.uri(), words_of({numbered(99), 0, 4, 2}));
    REQUIRE(server.is_answered(next));
    REQUIRE(next.state() == Raw::State::refused);
    says(std::string(verbs::decode_rejection(next.theirs)->text()), "takes no more connections");
    (void)server.connect(1);
    waiting.clear();  // All of them hang up before the context has seen them.
    server.at(1).is_blocked = false;
    (void)server.connect(2);
}
