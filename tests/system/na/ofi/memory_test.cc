// Transfers and fences of ofi+tcp.
#include <poll.h>
#include <sys/mman.h>

#include <memory>

#include "support/ofi_faults.h"
#include "support/ofi_process.h"
#include "support/tcp_relay.h"

using namespace weft;
using namespace weft::test;
using na::EventKind;

static na::Exposure expose_all(std::vector<std::byte>& memory, std::uint32_t region = 3) {
    return {region, 1, 77, memory, na::Access::read_write};
}

static na::RmaItem item(na::RmaKind kind, na::PeerId peer, na::FabricKey key, std::uint64_t offset,
                        Bytes local, std::uint64_t cookie) {
    na::RmaItem made;
    made.kind = kind;
    made.peer = peer;
    made.region = 3;
    made.generation = 1;
    made.fabric = key;
    made.offset = offset;
    made.local = local;
    made.cookie = cookie;
    return made;
}

TEST_CASE("ofi: a put is visible at the owner when it has completed, and a get reads it back") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    std::vector<std::byte> owned(1 << 20), local(1 << 20), back(1 << 20);
    for (std::size_t i = 0; i < local.size(); ++i) local[i] = std::byte(i * 7);
    const na::FabricKey key = server->expose(expose_all(owned)).value();

    const auto put = item(na::RmaKind::put, peer, key, 0, local, 11);
    REQUIRE(client->post({&put, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::rma_done); }));
    CHECK(client.seen[0].event.cookie == 11);
    CHECK(client.seen[0].event.code == Code::ok);
    CHECK(owned == local);

    client.seen.clear();
    const auto get = item(na::RmaKind::get, peer, key, 4096, Bytes(back).first(8192), 12);
    REQUIRE(client->post({&get, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::rma_done); }));
    CHECK(client.seen[0].event.code == Code::ok);
    CHECK(std::equal(back.begin(), back.begin() + 8192, local.begin() + 4096));
}

TEST_CASE("ofi: transfers beyond the depth are not accepted, and all accepted ones complete") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    std::vector<std::byte> owned(1 << 20), local(1 << 20);
    const na::FabricKey key = server->expose(expose_all(owned)).value();
    std::vector<na::RmaItem> items;
    for (std::uint64_t i = 0; i < 300; ++i) {
        items.push_back(
            item(na::RmaKind::put, peer, key, i * 2048, Bytes(local).subspan(i * 2048, 2048), i));
    }
    std::size_t posted = client->post(items);
    CHECK(posted == client->limits().rma_depth);
    REQUIRE(turn_until({&client, &server}, [&] {
        posted += client->post(std::span(items).subspan(posted));
        return client.count(EventKind::rma_done) == items.size();
    }));
    std::vector<bool> done(items.size());
    for (const Seen& entry : client.seen) {
        CHECK(entry.event.code == Code::ok);
        CHECK(!done[entry.event.cookie]);
        done[entry.event.cookie] = true;
    }
}

TEST_CASE("ofi: memory exposed before the first connection can be reached afterwards") {
    Node server(ofi_any_port), client;
    std::vector<std::byte> owned(4096, std::byte{5}), local(4096);
    const na::FabricKey key = client->expose(expose_all(owned)).value();
    na::PeerId incoming;
    join(client, server, &incoming);
    const auto get = item(na::RmaKind::get, incoming, key, 0, local, 1);
    REQUIRE(server->post({&get, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return server.find(EventKind::rma_done); }));
    CHECK(server.seen[0].event.code == Code::ok);
    CHECK(local == owned);
}

TEST_CASE("ofi: a wrong key, a wrong range or a fenced region costs the connection") {
    const int fault = GENERATE(0, 1, 2);
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    std::vector<std::byte> owned(8192, std::byte{9}), local(4096);
    na::FabricKey key = server->expose(expose_all(owned)).value();
    std::uint64_t offset = 0;
    if (fault == 0) key.key ^= 1;
    if (fault == 1) offset = 4097;
    if (fault == 2) {
        server->fence(3, na::Holders::lost);
        REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::region_fenced); }));
    }
    const auto put = item(na::RmaKind::put, peer, key, offset, local, 1);
    REQUIRE(client->post({&put, 1}) == 1);
    REQUIRE(turn_until({&client, &server}, [&] { return client.find(EventKind::peer_down); }));
    CHECK(client.count(EventKind::rma_done) == 1);
    CHECK(client.find(EventKind::rma_done)->event.code == Code::unavailable);
    CHECK(owned == std::vector<std::byte>(8192, std::byte{9}));
}

TEST_CASE("ofi: pending transfers complete once each when their peer is closed") {
    Node server(ofi_any_port), client;
    const na::PeerId peer = join(client, server);
    std::vector<std::byte> owned(16 << 20), local(16 << 20);
    const na::FabricKey key = server->expose(expose_all(owned)).value();
    std::vector<na::RmaItem> items;
    for (std::uint64_t i = 0; i < 16; ++i) {
        items.push_back(item(i % 2 ? na::RmaKind::get : na::RmaKind::put, peer, key, i << 20,
                             Bytes(local).subspan(i << 20, 1 << 20), i));
    }
    REQUIRE(client->post(items) == 16);  // The server is not turned: none of them can complete.
    turn_for({&client}, 20ms);
    client->close(peer);
    REQUIRE(turn_until({&client}, [&] { return client.count(EventKind::rma_done) == 16; }));
    std::vector<std::byte> before = local;
    turn_for({&client, &server}, 200ms);
    CHECK(client.count(EventKind::rma_done) == 16);
    CHECK(client.count(EventKind::peer_down) == 0);
    for (const Seen& entry : client.seen) CHECK(entry.event.code == Code::cancelled);
    CHECK(before == local);  // No get writes after its completion.
    client.seen.clear();
    REQUIRE(client->post({&items[0], 1}) == 1);  // Fails: the id of the peer is stale.
    client.turn();
    REQUIRE(client.find(EventKind::rma_done));
    CHECK(client.seen[0].event.code == Code::unavailable);
}

TEST_CASE("ofi: pending transfers complete once each when their peer is killed") {
    std::vector<std::byte> local(16 << 20);
    auto shared = SharedBytes(sizeof(na::FabricKey));
    Process owner([&](Process::Self& self) {
        Node server(ofi_any_port);
        std::vector<std::byte> owned(16 << 20);
        *shared.as<na::FabricKey>() = server->expose(expose_all(owned)).value();
        self.tell(server->address());
        while (!server.find(EventKind::peer_up)) server.turn();
        turn_for({&server}, 50ms);
        ::raise(SIGSTOP);  // In the middle of the transfers.
    });
    const std::string address = owner.hear();
    Node client;
    const na::PeerId peer = client.connect(address);
    REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
    owner.wait_stopped();
    std::vector<na::RmaItem> items;
    for (std::uint64_t i = 0; i < 16; ++i) {
        items.push_back(item(i % 2 ? na::RmaKind::get : na::RmaKind::put, peer,
                             *shared.as<na::FabricKey>(), i << 20,
                             Bytes(local).subspan(i << 20, 1 << 20), i));
    }
    REQUIRE(client->post(items) == 16);
    turn_for({&client}, 50ms);
    CHECK(client.count(EventKind::rma_done) == 0);
    owner.kill();
    REQUIRE(turn_until({&client}, [&] { return client.count(EventKind::rma_done) == 16; }));
    turn_for({&client}, 100ms);
    CHECK(client.count(EventKind::rma_done) == 16);
    CHECK(client.count(EventKind::peer_down) == 1);
}

// The guarantee beneath every bulk transfer: once the fence has completed, a pending write of a
// peer can't reach the memory any more. libfabric alone does not give that (after the registration
// is closed, the rest of a write still arrives).
TEST_CASE("ofi: a closed peer's writes never arrive after the fence") {
    constexpr std::size_t bytes = 64 << 20;
    std::vector<std::byte> owned(bytes);
    const std::string key_text(sizeof(na::FabricKey), 0);
    Process writer([&](Process::Self& self) {
        Node client;
        std::string address = self.hear();
        na::FabricKey key;
        const std::string sent = self.hear();
        std::memcpy(&key, sent.data(), sizeof key);
        const na::PeerId peer = client.connect(address);
        while (!client.find(EventKind::peer_up)) client.turn();
        std::vector<std::byte> local(1 << 20);
        for (std::uint64_t round = 1;; ++round) {  // Until killed, also when the peer is down.
            std::fill(local.begin(), local.end(), std::byte(round));
            std::vector<na::RmaItem> items;
            for (std::uint64_t i = 0; i < 16; ++i) {
                items.push_back(item(na::RmaKind::put, peer, key,
                                     (round * 16 + i) % (bytes >> 20) << 20, local, i));
            }
            client->post(items);
            client.turn();
        }
    });
    Node server(ofi_any_port);
    const na::FabricKey key = server->expose(expose_all(owned)).value();
    writer.say(server->address());
    writer.say({reinterpret_cast<const char*>(&key), sizeof key});
    REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::peer_up); }));
    const na::PeerId peer = server.seen[0].event.peer;
    REQUIRE(turn_until({&server}, [&] { return owned[bytes / 2] != std::byte{0}; }));
    turn_for({&server}, 30ms);
    server->close(peer);
    server->fence(3, na::Holders::lost);
    REQUIRE(turn_until({&server}, [&] { return server.find(EventKind::region_fenced); }));
    const std::vector<std::byte> then = owned;
    turn_for({&server}, 300ms);
    CHECK(std::memcmp(then.data(), owned.data(), bytes) == 0);
    writer.kill();
}

namespace {

// An owner that answers on its own, and a client that reads 16 MiB from it.
class Reading {
  public:
    Reading() {
        address_ = owner_.hear();
        const std::string key = owner_.hear();
        std::memcpy(&key_, key.data(), sizeof key_);
    }

    // Returns when answers arrive and not all of them have arrived.
    void begin(Node& client) {
        ask(client);
        const std::size_t turns = base::SeededRandom(++rounds_).next() % 64;
        REQUIRE(turn_until({&client}, [&] { return has_come(1 << 16); }));
        for (std::size_t i = 0; i < turns && !has_come(14 << 20); ++i) client.turn();
    }

    // Posts 16 gets of 1 MiB each.
    void ask(Node& client) {
        peer = client.connect(address_);
        REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::peer_up); }));
        std::fill(local_.begin(), local_.end(), std::byte{0});
        std::vector<na::RmaItem> items;
        for (std::uint64_t i = 0; i < 16; ++i) {
            items.push_back(item(na::RmaKind::get, peer, key_, i << 20,
                                 Bytes(local_).subspan(i << 20, 1 << 20), i));
        }
        REQUIRE(client->post(items) == 16);
        client->flush();
    }

    // Stops the owner in the middle of an answer, with everything that it sent before received.
    void begin_and_stop(Node& client) {
        for (int tries = 0; tries < 100; ++tries) {
            ask(client);
            // Usually the owner fills the socket, which holds some of the answers; with sanitizers
            // that takes longer.
            (void)::poll(nullptr, 0, 1 << (tries % 8));
            owner_.signal(SIGSTOP);
            owner_.wait_stopped();
            turn_for({&client}, 20ms);
            for (std::size_t at = 0; at < local_.size(); at += 1 << 20) {
                if (has_come(at) && !has_come(at + (1 << 20) - 1)) return;
            }
            go_on();  // The owner stopped between two answers.
            REQUIRE(turn_until({&client}, [&] { return client.count(EventKind::rma_done) == 16; }));
            client->close(peer);
            client.seen.clear();
        }
        FAIL("never in the middle");
    }
    void go_on() { owner_.signal(SIGCONT); }

    na::PeerId peer;

  private:
    bool has_come(std::size_t byte) const { return local_[byte] == std::byte{5}; }

    Process owner_{[](Process::Self& self) {
        Node server(ofi_any_port);
        std::vector<std::byte> owned(16 << 20, std::byte{5});
        const na::FabricKey key = server->expose(expose_all(owned)).value();
        self.tell(server->address());
        self.tell({reinterpret_cast<const char*>(&key), sizeof key});
        for (;;) server.turn();
    }};
    std::string address_;
    na::FabricKey key_;
    std::vector<std::byte> local_ = std::vector<std::byte>(16 << 20);
    std::uint64_t rounds_ = 0;
};

}  // namespace

TEST_CASE("ofi: a peer may be closed while answers to gets arrive") {
    Reading reading;
    Node client;
    for (int round = 0; round < 30; ++round) {
        INFO("round " << round);
        reading.begin(client);
        client->close(reading.peer);
        REQUIRE(turn_until({&client}, [&] { return client.count(EventKind::rma_done) == 16; }));
        client.seen.clear();
    }
}

TEST_CASE("ofi: an endpoint may be destroyed while answers to gets arrive") {
    Reading reading;
    for (int round = 0; round < 10; ++round) {
        INFO("round " << round);
        Node client;
        reading.begin(client);
        client.destroy();
    }
}

// libfabric 1.17 can't close such a connection (OfiEndpoint::cut()).
TEST_CASE("ofi: a peer that stalls in the middle of an answer delays the fence and nothing else") {
    Reading reading;
    Node client;
    std::vector<std::byte> memory(4096);
    client->expose(expose_all(memory)).value();
    reading.begin_and_stop(client);
    const OfiRefuses bye(GENERATE(0, 1));
    client->close(reading.peer);
    client->fence(3, na::Holders::lost);
    turn_for({&client}, 20ms);
    CHECK(client.count(EventKind::region_fenced) == 0);
    reading.go_on();
    REQUIRE(turn_until({&client}, [&] { return client.find(EventKind::region_fenced); }));
    REQUIRE(turn_until({&client}, [&] { return client.count(EventKind::rma_done) == 16; }));
}

TEST_CASE("ofi: an endpoint may be destroyed while a peer stalls in the middle of an answer") {
    Reading reading;
    Node client;
    reading.begin_and_stop(client);
    client.destroy();
}

// When only the head of an answer has arrived, libfabric has begun to read it and does not report
// that.
TEST_CASE("ofi: a peer may be closed when at most the head of an answer has arrived") {
    Node owner(ofi_any_port), client;
    std::vector<std::byte> owned(4096, std::byte{5}), local(4096);
    const na::FabricKey key = owner->expose(expose_all(owned)).value();
    TcpRelay relay(na::parse_address(owner->address()).value().port);
    const auto until = [&](auto&& done) {
        return turn_until({&owner, &client}, [&] {
            relay.turn();
            return done();
        });
    };
    const auto go_on = [&](Duration span) {
        const TimePoint end = real_now() + span;
        (void)until([&] { return real_now() >= end; });
    };
    for (std::size_t bytes = 0; bytes <= 64; ++bytes) {
        INFO(bytes << " bytes have come");
        const na::PeerId peer =
            client.connect("ofi+tcp://127.0.0.1:" + std::to_string(relay.port()));
        REQUIRE(until([&] { return client.find(EventKind::peer_up); }));
        go_on(5ms);
        relay.hold_after(bytes);
        const na::RmaItem get = item(na::RmaKind::get, peer, key, 0, local, 1);
        REQUIRE(client->post({&get, 1}) == 1);
        client->flush();
        REQUIRE(until([&] { return relay.held() > local.size() / 2; }));
        go_on(2ms);
        client->close(peer);
        go_on(2ms);
        relay.release();
        REQUIRE(until([&] { return client.count(EventKind::rma_done) == 1; }));
        go_on(2ms);
        client.seen.clear();
    }
}
