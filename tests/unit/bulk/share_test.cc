// Transfers from many peers at one endpoint: peers that do not answer harm only themselves.
#include <algorithm>

#include "support/raw_peer.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId shared_pull("test.Share/Pull");
constexpr std::size_t block = 1 << 20;  // Four chunks.

struct Puller final : Service {
    Runtime* runtime = nullptr;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(shared_pull, [this](Call call) {
            const RegionRef ref = RegionRef::decode(call.request()).value();
            Buffer into = runtime->allocate(ref.length).value();
            auto kept = std::make_shared<Call>(std::move(call));
            kept->get(ref, 0, into, [kept](const Status& status) {
                if (status.ok()) return kept->reply(ByteView{});
                kept->fail(status);
            });
        });
    }
};

// Exposes a block and lets the server read it.
struct Exposer {
    Exposer(SimRig& rig, const std::string& name) : runtime(rig.add(name)) {
        memory = runtime.allocate(block).value();
        region = runtime.expose(memory, {.access = Access::read}).value();
        channel = runtime.connect("sim://server").value();
    }
    void request_pulls(int times, std::size_t bytes, Duration timeout) {
        std::array<std::byte, RegionRef::wire_bytes> ref;
        region.ref(0, bytes).encode(ref);
        for (; times > 0; --times) {
            channel.call(shared_pull, ref, {.timeout = timeout},
                         [to = tally](const Status& status, ByteView) {
                             to->last = status;
                             ++(status.ok() ? to->ok : to->failed);
                         });
        }
    }

    Runtime& runtime;
    Buffer memory;
    Region region;
    Channel channel;
    struct Tally {
        Status last;
        int ok = 0, failed = 0;
        int ended() const { return ok + failed; }
    };
    // Calls may end after this object.
    std::shared_ptr<Tally> tally = std::make_shared<Tally>();
};

struct Server {
    explicit Server(Duration piece_time = 500ns) : rig(3, {.piece_time = piece_time}) {
        service.runtime = &runtime;
        REQUIRE(runtime.add(service).ok());
    }
    // This peer answers no gets, and the server begins many from it.
    std::unique_ptr<Exposer> add_silent(const std::string& name, Duration timeout) {
        auto silent = std::make_unique<Exposer>(rig, name);
        REQUIRE(rig.world->ignore_rma(name));
        silent->request_pulls(200, block, timeout);
        rig.run_for(1ms);
        return silent;
    }
    const bulk::Transfers& transfers() { return node_of(runtime).bulk.transfers; }

    Puller service;
    SimRig rig;
    Runtime& runtime = rig.add("server");
};

}  // namespace

TEST_CASE("a peer that answers no transfers holds its share only, and the memory is freed") {
    Server server;
    const std::size_t before = node_of(server.runtime).commons.arena->allocated_bytes();
    const auto silent = server.add_silent("silent", 500ms);
    Exposer honest(server.rig, "honest");
    honest.request_pulls(20, block, 100ms);
    REQUIRE(server.rig.run_until([&] { return honest.tally->ended() == 20; }));
    INFO(honest.tally->last.to_string());
    CHECK(honest.tally->ok == 20);
    // The transfers have failed, but the network may still write to their memory: it is quarantined
    // for as long as the peer may take.
    server.rig.run_for(1s);
    CHECK(silent->tally->failed == 200);
    CHECK(server.transfers().quarantined() > 0);
    CHECK(node_of(server.runtime).commons.arena->allocated_bytes() > before);
    server.rig.run_for(11s);
    CHECK(server.transfers().quarantined() == 0);
    CHECK(node_of(server.runtime).commons.arena->allocated_bytes() == before);
}

TEST_CASE("a peer is served when stalled peers fill the endpoint, which disconnects them") {
    Server server;
    std::vector<std::unique_ptr<Exposer>> silent;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
        // Their deadlines are too late to free the endpoint.
        silent.push_back(server.add_silent(name, 60s));
    }
    Exposer honest(server.rig, "honest");
    honest.request_pulls(20, block, 30s);
    REQUIRE(server.rig.run_until([&] { return honest.tally->ended() == 20; }));
    INFO(honest.tally->last.to_string());
    CHECK(honest.tally->ok == 20);
    // The server cut their connections; they reconnect, and their calls end with UNAVAILABLE.
    CHECK(server.rig.run_until(
        [&] {
            return std::count_if(silent.begin(), silent.end(), [](const auto& one) {
                       return one->tally->last.code() == Code::unavailable;
                   }) >= 4;
        },
        3s));
}

TEST_CASE("peers take turns at a full endpoint: a small transfer is not the last one") {
    Server server(20us);  // A slow network.
    std::vector<std::unique_ptr<Exposer>> greedy;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
        greedy.push_back(std::make_unique<Exposer>(server.rig, name));
        greedy.back()->request_pulls(200, block, 60s);
    }
    server.rig.run_for(5ms);
    Exposer modest(server.rig, "modest");
    modest.request_pulls(1, 1000, 60s);
    REQUIRE(server.rig.run_until([&] { return modest.tally->ok == 1; }));
    int ended = 0;
    for (const auto& one : greedy) ended += one->tally->ok;
    CHECK(ended < 100);
    REQUIRE(server.rig.run_until([&] {
        return std::all_of(greedy.begin(), greedy.end(),
                           [](const auto& one) { return one->tally->ended() == 200; });
    }));
    for (const auto& one : greedy) CHECK(one->tally->ok == 200);
}

TEST_CASE("a slow peer keeps its connection when its failed transfers end within 9 s") {
    Server server(140ms);  // 64 pieces a chunk.
    Exposer slow(server.rig, "slow");
    slow.request_pulls(1, block, 500ms);
    server.rig.run_for(1s);
    CHECK(slow.tally->last.code() == Code::deadline_exceeded);
    CHECK(server.transfers().quarantined() == 1);
    server.rig.run_for(9s);
    CHECK(server.transfers().quarantined() == 0);
    int lost = 0;
    slow.channel.call(
        MethodId("test.Share/Nothing"), {}, {.timeout = 1s},
        [&](const Status& status, ByteView) { lost += status.code() != Code::unimplemented; });
    server.rig.run_for(1s);
    CHECK(lost == 0);
}

TEST_CASE("memory for large bodies of a silent peer is freed with its connection") {
    Victim victim;
    RawPeer raw(victim.rig, "silent");
    REQUIRE(victim.rig.world->ignore_rma("silent"));
    raw.answers_pings = true;  // The peer is alive; only its memory does not answer.
    raw.connect("server");
    const std::size_t before = node_of(victim.server).commons.arena->allocated_bytes();
    for (std::uint32_t call = 1; call < 60; ++call) {
        const RegionRef body = Victim::rendezvous_ref(raw.incarnation, 64 << 20);
        REQUIRE(raw.send(victim.rendezvous_request(body, call, {call, 1})));
        raw.wait(60ms);  // Longer than the deadline of the call.
        REQUIRE_FALSE(raw.lost);
    }
    // Half of the memory for all peers: docs/limits.md.
    CHECK(node_of(victim.server).commons.arena->allocated_bytes() - before <= std::size_t{512}
                                                                                  << 20);
    CHECK(node_of(victim.server).bulk.rendezvous.bytes_held() >= std::size_t{512} << 20);
    victim.check_serves();
    raw.wait(11s);
    CHECK(raw.lost);
    victim.rig.run_for(20s);  // Idle blocks are freed after some seconds.
    CHECK(node_of(victim.server).commons.arena->allocated_bytes() == before);
}
