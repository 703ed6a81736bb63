// Transfers from many peers at one endpoint: those that answer nothing harm nobody but themselves.
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

// Lends a block, and has the server read it.
struct Lender {
    Lender(SimRig& rig, const std::string& name) : runtime(rig.add(name)) {
        memory = runtime.allocate(block).value();
        region = runtime.expose(memory, {.access = Access::read}).value();
        channel = runtime.connect("sim://server").value();
    }
    void ask(int times, std::size_t bytes, Duration timeout) {
        std::array<std::byte, RegionRef::wire_bytes> ref;
        region.ref(0, bytes).encode(ref);
        for (; times > 0; --times) {
            channel.call(shared_pull, ref, {.timeout = timeout},
                         [to = seen](const Status& status, ByteView) {
                             to->last = status;
                             ++(status.ok() ? to->ok : to->failed);
                         });
        }
    }

    Runtime& runtime;
    Buffer memory;
    Region region;
    Channel channel;
    struct Seen {
        Status last;
        int ok = 0, failed = 0;
        int ended() const { return ok + failed; }
    };
    // Calls may end after the lender.
    std::shared_ptr<Seen> seen = std::make_shared<Seen>();
};

struct Server {
    explicit Server(Duration piece_time = 500ns) : rig(3, {.piece_time = piece_time}) {
        service.runtime = &runtime;
        REQUIRE(runtime.add(service).ok());
    }
    // Answers no get, and has many asked of it.
    std::unique_ptr<Lender> add_silent(const std::string& name, Duration timeout) {
        auto silent = std::make_unique<Lender>(rig, name);
        REQUIRE(rig.world->silence(name));
        silent->ask(200, block, timeout);
        rig.run_for(1ms);
        return silent;
    }
    const bulk::Transfers& transfers() { return runtime.node().bulk.transfers; }

    Puller service;
    SimRig rig;
    Runtime& runtime = rig.add("server");
};

}  // namespace

TEST_CASE("a peer that answers no transfer keeps its share, and what it held comes back") {
    Server server;
    const std::size_t before = server.runtime.node().arena->allocated_bytes();
    const auto silent = server.add_silent("silent", 500ms);
    Lender honest(server.rig, "honest");
    honest.ask(20, block, 100ms);
    REQUIRE(server.rig.run_until([&] { return honest.seen->ended() == 20; }));
    INFO(honest.seen->last.to_string());
    CHECK(honest.seen->ok == 20);
    // Given up, but the network may still write there: held, for as long as the peer has.
    server.rig.run_for(1s);
    CHECK(silent->seen->failed == 200);
    CHECK(server.transfers().quarantined() > 0);
    CHECK(server.runtime.node().arena->allocated_bytes() > before);
    server.rig.run_for(11s);
    CHECK(server.transfers().quarantined() == 0);
    CHECK(server.runtime.node().arena->allocated_bytes() == before);
}

TEST_CASE("who waits on peers that hold a full endpoint and do not move is served without them") {
    Server server;
    std::vector<std::unique_ptr<Lender>> silent;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
        silent.push_back(server.add_silent(name, 60s));  // No deadline of theirs will help.
    }
    Lender honest(server.rig, "honest");
    honest.ask(20, block, 30s);
    REQUIRE(server.rig.run_until([&] { return honest.seen->ended() == 20; }));
    INFO(honest.seen->last.to_string());
    CHECK(honest.seen->ok == 20);
    // Their connections were cut; they come back, and hear what became of their calls.
    CHECK(server.rig.run_until(
        [&] {
            return std::count_if(silent.begin(), silent.end(), [](const auto& one) {
                       return one->seen->last.code() == Code::unavailable;
                   }) >= 4;
        },
        3s));
}

TEST_CASE("at a full endpoint peers take turns: who wants little is not the last") {
    Server server(20us);  // A slow network.
    std::vector<std::unique_ptr<Lender>> greedy;
    for (const char* name : {"a", "b", "c", "d", "e", "f"}) {
        greedy.push_back(std::make_unique<Lender>(server.rig, name));
        greedy.back()->ask(200, block, 60s);
    }
    server.rig.run_for(5ms);
    Lender modest(server.rig, "modest");
    modest.ask(1, 1000, 60s);
    REQUIRE(server.rig.run_until([&] { return modest.seen->ok == 1; }));
    int ended = 0;
    for (const auto& one : greedy) ended += one->seen->ok;
    CHECK(ended < 100);
    REQUIRE(server.rig.run_until([&] {
        return std::all_of(greedy.begin(), greedy.end(),
                           [](const auto& one) { return one->seen->ended() == 200; });
    }));
    for (const auto& one : greedy) CHECK(one->seen->ok == 200);
}

TEST_CASE("a slow peer that is done with what was given up in 9 s keeps its connection") {
    Server server(140ms);  // 64 pieces a chunk.
    Lender slow(server.rig, "slow");
    slow.ask(1, block, 500ms);
    server.rig.run_for(1s);
    CHECK(slow.seen->last.code() == Code::deadline_exceeded);
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

TEST_CASE("what large bodies of a silent peer hold comes back with its connection") {
    Victim victim;
    RawPeer raw(victim.rig, "silent");
    REQUIRE(victim.rig.world->silence("silent"));
    raw.answers_pings = true;  // It lives; only its memory does not answer.
    raw.connect("server");
    const std::size_t before = victim.server.node().arena->allocated_bytes();
    for (std::uint32_t call = 1; call < 60; ++call) {
        const RegionRef body = Victim::lent_ref(raw.incarnation, 64 << 20);
        REQUIRE(raw.send(victim.lent_request(body, call, {call, 1})));
        raw.wait(60ms);  // Longer than it may take.
        REQUIRE_FALSE(raw.lost);
    }
    // Half of what there is for all: docs/limits.md.
    CHECK(victim.server.node().arena->allocated_bytes() - before <= std::size_t{512} << 20);
    CHECK(victim.server.node().bulk.staging.bytes_held() >= std::size_t{512} << 20);
    victim.check_serves();
    raw.wait(11s);
    CHECK(raw.lost);
    victim.rig.run_for(20s);  // Idle blocks go by themselves.
    CHECK(victim.server.node().arena->allocated_bytes() == before);
}
