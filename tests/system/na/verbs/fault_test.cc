// Verbs connections when a device, a link or a peer fails.
#include <algorithm>

#include "na/address.h"
#include "support/na_rma.h"
#include "support/verbs_rig.h"

using namespace weft;
using namespace weft::na;
using namespace weft::test;

TEST_CASE("verbs fault: a broken device disconnects all peers with a reason") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    for (int i = 0; i < 3; ++i) rig->connect(client, server);
    rig.fake.break_device();
    REQUIRE(rig->pump_until([&] { return client.downs.size() == 3 && server.downs.size() == 3; }));
    for (const NaNode* node : {&server, &client}) {
        for (const Down& down : node->downs) {
            CHECK(down.code == Code::unavailable);
            says(down.error, "fake0");
            says(down.error, "catastrophic");
        }
    }
    rig->run_until_idle();
    // Later connects fail, too, with the reason.
    rig->start_connect(client, server->address());
    REQUIRE(rig->pump_until([&] { return client.downs.size() == 4; }));
    says(client.downs[3].error, "unusable in this process");
}

TEST_CASE("verbs fault: a completion queue overflow disconnects the peers with a reason") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    for (int i = 0; i < 3; ++i) rig->connect(client, server);
    rig.fake.overflow(0);
    REQUIRE(rig->pump_until([&] { return server.downs.size() == 3; }));
    for (const Down& down : server.downs) {
        CHECK(down.code == Code::unavailable);
        says(down.error, "CQ");
    }
    // New clients are refused with the reason; an endpoint with another device still works.
    rig->run_until_idle();
    const std::size_t before = client.downs.size();
    rig->start_connect(client, server->address());
    REQUIRE(rig->pump_until([&] { return client.downs.size() > before; }));
    says(client.downs.back().error, "refused: the RDMA device is unusable");
    NaNode& other = rig->open();
    rig->connect(client, other);
}

TEST_CASE("verbs fault: a removed device is reported to its peers") {
    VerbsRig rig;
    NaPair pair(*rig);
    rig.fake.remove_device();
    const Down down = rig.wait_for_down(pair.a);
    CHECK(down.code == Code::unavailable);
    says(down.error, "was removed");
    rig.wait_for_down(pair.b);
    rig->run_until_idle();
    rig->start_connect(pair.a, pair.b->address());
    REQUIRE(rig->pump_until([&] { return pair.a.downs.size() == 2; }));
    says(pair.a.downs.back().error, "was removed");
}

TEST_CASE("verbs fault: work that completes with an error disconnects its peer only") {
    for (const ibv_wc_status status :
         {IBV_WC_RETRY_EXC_ERR, IBV_WC_RNR_RETRY_EXC_ERR, IBV_WC_REM_OP_ERR, IBV_WC_LOC_PROT_ERR}) {
        VerbsRig rig;
        NaNode& server = rig->open();
        NaNode& client = rig->open({.listens = false});
        const PeerId one = rig->connect(client, server);
        const PeerId other = rig->connect(client, server);
        rig.fake.end_next_work(FakeLane::messages, status, 1);
        REQUIRE(client.send(one, 8000));
        client->flush();
        const Down down = rig.wait_for_down(client);
        CHECK(down.peer == one);
        CHECK(down.code == Code::unavailable);
        says(down.error, "the connection broke: ");
        rig.wait_for_down(server);
        REQUIRE(client.send(other, 8000));
        CHECK(rig->pump_until([&] { return server.count(test::PeerState::up) == 1; }));
    }
}

TEST_CASE("verbs fault: a message that the device refuses to post disconnects its peer only") {
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    const PeerId one = rig->connect(client, server);
    const PeerId other = rig->connect(client, server);
    rig.fake.refuse_posts(ENOMEM, 1, 1);
    REQUIRE(client.send(one, 8000));
    client->flush();
    const Down down = rig.wait_for_down(client);
    CHECK(down.peer == one);
    says(down.error, "the device refused a message: Cannot allocate memory");
    REQUIRE(client.send(other, 64));
    CHECK(client->info(other) != nullptr);
}

TEST_CASE("verbs fault: a short link failure has no effect, and a longer one disconnects") {
    // Seven retries after the first attempt, 67 ms apart.
    const std::pair<Duration, bool> breaks[] = {{500ms, true}, {540ms, false}};
    for (const auto& [length, survives] : breaks) {
        INFO(length.count());
        VerbsRig rig;
        NaPair pair(*rig);
        ExposedMemory memory(*rig, pair.b, 4096, Access::read);
        std::vector<std::byte> local(512);
        REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, local)) == Code::ok);
        rig.fake.cut();
        for (int i = 0; i < 10; ++i) REQUIRE(pair.a.send(pair.ab, 3000));
        const std::uint64_t cookie = pair.a.post(memory.get(pair.ab, 0, local));
        for (int i = 0; i < 10; ++i) rig->pump();
        rig.fake.set_port(false);
        rig.fake.pass(length);
        rig.fake.set_port(true);
        rig.fake.restore();
        REQUIRE(rig->pump_until([&] { return pair.a.rma_done.contains(cookie); }));
        CHECK(pair.a.rma_done[cookie] == (survives ? Code::ok : Code::unavailable));
        if (survives) {
            CHECK(rig->pump_until([&] { return pair.b.at(pair.ba).received == 10; }));
            CHECK(rig.is_alive(pair));
            CHECK(pair.a.downs.empty());
        } else {
            const Down down = rig.wait_for_down(pair.a);
            says(down.error, "the connection broke: transport retry counter exceeded");
            rig.wait_for_down(pair.b);
        }
    }
}

TEST_CASE("verbs fault: a receiver without buffers delays its peers, and no message is lost") {
    VerbsRig rig;
    NaPair pair(*rig);
    NaNode& other = rig->open();
    const PeerId to_other = rig->connect(pair.a, other);
    rig.fake.limit_memory(1);
    std::uint64_t sent = 0;
    while (pair.a.send(pair.ab, 16'000)) {
        ++sent;
        pair.a->flush();
    }
    REQUIRE(sent > 0);
    rig->run_until_idle();
    CHECK(pair.b.at(pair.ba).received == 0);
    CHECK(pair.a.downs.empty());
    // Other peers are not delayed.
    REQUIRE(pair.a.send(to_other, 64));
    CHECK(
        rig->pump_until([&] { return other.at(other.peer_of(pair.a.incarnation)).received == 1; }));
    rig.fake.feed();
    CHECK(rig->pump_until([&] { return pair.b.at(pair.ba).received == sent; }));
    CHECK(rig->pump_until([&] { return pair.a.at(pair.ab).writable; }));
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs fault: messages and transfers that are pending at a disconnect end once each") {
    for (const bool hears : {true, false}) {
        VerbsRig rig;
        NaNode& client = rig->open({.listens = false});
        NaNode* servers[4];
        PeerId peers[4];
        std::vector<std::unique_ptr<ExposedMemory>> memory;
        std::vector<std::vector<std::byte>> locals;
        for (int i = 0; i < 4; ++i) {
            servers[i] = &rig->open();
            peers[i] = rig->connect(client, *servers[i]);
            memory.push_back(
                std::make_unique<ExposedMemory>(*rig, *servers[i], 65536, Access::read_write));
            locals.emplace_back(4096);
            REQUIRE(run(*rig, client, memory[i]->get(peers[i], 0, locals[i])) == Code::ok);
        }
        rig.fake.cut();
        const std::size_t before = client.rma_done.size();
        std::vector<std::vector<std::byte>> more(64, std::vector<std::byte>(1024));
        for (std::size_t i = 0; i < 64; ++i) {
            const ExposedMemory& to = *memory[i % 4];
            REQUIRE(client.post(i % 8 < 4 ? to.get(peers[i % 4], i * 1000, more[i])
                                          : to.put(peers[i % 4], i * 1000, more[i])) != 0);
        }
        for (int i = 0; i < 4; ++i) {
            for (int message = 0; message < 20; ++message) client.send(peers[i], 2000);
        }
        rig->run_until_idle();
        CHECK(client.rma_under_way.size() == 64);
        if (hears) {
            // The disconnects are reported when the link is restored.
            for (NaNode* server : servers) rig->destroy(*server);
            rig.fake.restore();
        } else {
            rig.fake.expire();
        }
        REQUIRE(rig->pump_until([&] { return client.downs.size() == 4; }));
        REQUIRE(rig->pump_until([&] { return client.rma_under_way.empty(); }));
        CHECK(client.rma_done.size() == before + 64);
        for (const Down& down : client.downs) CHECK(down.code == Code::unavailable);
    }
}

TEST_CASE("verbs fault: transfers stay pending until a failed queue pair destroy succeeds") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, 65536, Access::read_write);
    std::vector<std::vector<std::byte>> locals(8, std::vector<std::byte>(1024));
    REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, locals[0])) == Code::ok);
    locals[0].assign(1024, std::byte{0});
    rig.fake.cut();
    for (std::size_t i = 0; i < locals.size(); ++i) {
        REQUIRE(pair.a.post(memory.get(pair.ab, i * 1024, locals[i])) != 0);
    }
    rig->run_until_idle();
    REQUIRE(pair.a.rma_under_way.size() == 8);
    rig.fake.fail_destroys(EBUSY);
    pair.a.close(pair.ab);
    rig->run_until_idle();
    // The device still writes there when the link is restored.
    CHECK(pair.a.rma_under_way.size() == 8);
    SECTION("they end when the destroy is retried") {
        rig.fake.fail_destroys(EBUSY);
        rig->skip(1100ms);
        rig->run_until_idle();
        CHECK(pair.a.rma_under_way.size() == 8);
        rig.fake.restore();
        rig->run_until_idle();
        CHECK(std::ranges::equal(locals[7], memory.bytes().subspan(7 * 1024, 1024)));
        rig->skip(1100ms);
        REQUIRE(rig->pump_until([&] { return pair.a.rma_under_way.empty(); }));
        for (const auto& [cookie, code] : pair.a.rma_done) {
            CHECK((code == Code::unavailable || code == Code::ok));
        }
        NaNode& other = rig->open();
        rig->connect(pair.a, other);
    }
    SECTION("they end with their endpoint") { pair.a.rma_under_way.clear(); }
}

TEST_CASE("verbs fault: a refused queue pair that can't be destroyed keeps its transfers") {
    VerbsRig rig;
    NaPair pair(*rig);
    ExposedMemory memory(*rig, pair.b, 65536, Access::read);
    std::vector<std::byte> first(64), denied(64), last(64);
    REQUIRE(run(*rig, pair.a, memory.get(pair.ab, 0, first)) == Code::ok);
    rig.fake.fail_destroys(EIO);
    RmaItem bad = memory.get(pair.ab, 0, denied);
    bad.fabric.key ^= 1;
    CHECK(run(*rig, pair.a, bad) == Code::permission_denied);
    // Later transfers use another queue pair.
    CHECK(run(*rig, pair.a, memory.get(pair.ab, 64, last)) == Code::ok);
    rig->skip(1100ms);
    rig->run_until_idle();
    CHECK(rig.is_alive(pair));
}

TEST_CASE("verbs fault: connections that end under load leak no slots, credits or buffers") {
    // If each connection leaked a message slot, a credit or a buffer, the last one would have none.
    VerbsRig rig;
    NaNode& server = rig->open();
    NaNode& client = rig->open({.listens = false});
    const std::size_t buffers = [&] {
        rig->connect(client, server);
        rig->run_until_idle();
        return rig.fake.receives_posted(0);
    }();
    for (std::uint64_t round = 0; round < 60; ++round) {
        const PeerId peer = rig->connect(client, server);
        const PeerId seen = [&] {
            PeerId newest;
            for (std::uint32_t index = 0; index < 64; ++index) {
                for (std::uint32_t generation = 1; generation < 200; ++generation) {
                    const PeerId id{index, generation};
                    const PeerInfo* info = server->info(id);
                    if (info && server.at(id).received == 0) newest = id;
                }
            }
            return newest;
        }();
        switch (round % 4) {
            case 0: rig.fake.end_next_work(FakeLane::messages, IBV_WC_RETRY_EXC_ERR, 1); break;
            case 1: rig.fake.cut(); break;
            case 2: rig.fake.limit_memory(0); break;
            default: break;
        }
        for (int i = 0; i < 40 && client.send(peer, 9000); ++i) client->flush();
        for (int i = 0; i < 40 && seen && server.send(seen, 9000); ++i) server->flush();
        for (int i = 0; i < 3; ++i) rig->pump();
        if (client->info(peer)) client.close(peer);
        rig.fake.restore();
        rig.fake.feed();
        rig->skip(300ms);  // Time for its bye.
        REQUIRE(rig->pump_until([&] { return server.count(test::PeerState::up) == 1; }));
    }
    rig->skip(300ms);
    rig->run_until_idle();
    // All buffers are posted, and the remaining peer can send as before.
    CHECK(rig.fake.receives_posted(0) == buffers);
    const PeerId seen = server.peer_of(client.incarnation);
    REQUIRE(seen);
    for (int i = 0; i < 500; ++i) {
        REQUIRE(rig->pump_until([&] { return server.send(seen, 9000); }));
    }
}
