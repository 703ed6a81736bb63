// The memory for bodies too large for a message is bounded, and its idle blocks hold up no call.
#include <algorithm>
#include <set>

#include "support/raw_echo.h"
#include "support/raw_peer.h"
#include "support/victim.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId sized("test.Sized/Sized");
constexpr std::size_t body_bytes_max = 1 << 20;

// Replies with as many bytes as the request demands.
struct Sized final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(sized, [](Call call) {
            call.reply(std::vector<std::byte>(base::load<std::uint64_t>(call.request().data())));
        });
    }
};

std::vector<std::byte> body_of(std::size_t bytes, std::uint64_t reply_bytes) {
    std::vector<std::byte> body(std::max(bytes, sizeof reply_bytes));
    base::store(body.data(), reply_bytes);
    return body;
}

struct Memory {
    explicit Memory(na::sim::WorldOptions network = {},
                    const RuntimeOptions& options = {.argument_bytes_max = body_bytes_max})
        : rig(1, network), server(rig.add("server", options)) {
        REQUIRE(server.add(service).ok());
    }
    Channel client(const std::string& name = "") {
        const Channel channel = rig.add(name).connect("sim://server").value();
        CallOutcome warm;
        call(channel, 8, 8, warm);
        REQUIRE(rig.run_until([&] { return warm.completions > 0; }));
        return channel;
    }
    static void call(const Channel& channel, std::size_t request, std::size_t reply,
                     CallOutcome& outcome, Duration timeout = 20s) {
        channel.call(sized, body_of(request, reply), {.timeout = timeout}, outcome.done());
    }
    // Makes `count` calls at once; returns how many succeed.
    int calls(const Channel& channel, std::size_t count, std::size_t request, std::size_t reply) {
        std::vector<CallOutcome> outcomes(count);
        for (CallOutcome& outcome : outcomes) call(channel, request, reply, outcome);
        return finish(outcomes);
    }
    int finish(std::vector<CallOutcome>& outcomes) {
        REQUIRE(rig.run_until([&] {
            return std::all_of(outcomes.begin(), outcomes.end(),
                               [](const CallOutcome& one) { return one.completions > 0; });
        }));
        for (const CallOutcome& one : outcomes) UNSCOPED_INFO(one.status.to_string());
        return static_cast<int>(
            std::count_if(outcomes.begin(), outcomes.end(),
                          [](const CallOutcome& one) { return one.status.ok(); }));
    }
    bulk::Rendezvous& rendezvous() { return node_of(server).bulk.rendezvous; }

    Sized service;  // Outlives the runtime that serves it.
    SimRig rig;
    Runtime& server;
};

}  // namespace

TEST_CASE("large bodies are sent when users have exposed as many regions as they may") {
    Memory memory;
    const Channel channel = memory.client();
    const Buffer exposed = memory.server.allocate(4096).value();
    std::vector<Region> regions;
    Result<Region> region = memory.server.expose(exposed, {});
    while (region) {
        regions.push_back(*std::move(region));
        region = memory.server.expose(exposed, {});
    }
    CHECK(region.status().code() == Code::resource_exhausted);
    CHECK(memory.calls(channel, 1, 8, body_bytes_max) == 1);
}

TEST_CASE("memory for large bodies: idle blocks hold up no request or reply") {
    Memory memory;
    const Channel channel = memory.client(), other = memory.client();
    // Replies of many sizes; their blocks stay exposed to the client that received them.
    for (const std::size_t bytes : {1024, 896, 768, 640}) {
        CHECK(memory.calls(channel, 4, 8, bytes << 10) == 4);
    }
    CHECK(memory.rendezvous().bytes_held() <= 8 * body_bytes_max);
    const Channel& asking = GENERATE(true, false) ? channel : other;
    SECTION("a request") { CHECK(memory.calls(asking, 1, 512 << 10, 8) == 1); }
    SECTION("the largest request") { CHECK(memory.calls(asking, 1, body_bytes_max, 8) == 1); }
    SECTION("a reply") { CHECK(memory.calls(asking, 1, 8, 512 << 10) == 1); }
    SECTION("the largest reply") { CHECK(memory.calls(asking, 1, 8, body_bytes_max) == 1); }
}

TEST_CASE("memory for large bodies: bodies land in unexposed blocks while there is room") {
    Memory memory;
    const Channel channel = memory.client();
    std::set<const std::byte*> landed;
    for (int i = 0; i < 10; ++i) {
        bool is_done = false;
        channel.call(sized, body_of(256 << 10, 256 << 10), {},
                     [&](const Status& status, ByteView reply) {
                         CHECK(status.ok());
                         landed.insert(reply.data());
                         is_done = true;
                     });
        REQUIRE(memory.rig.run_until([&] { return is_done; }));
    }
    CHECK(landed.size() == 1);
}

TEST_CASE("memory for large bodies: idle blocks are freed when the arena is full") {
    Memory memory({}, {.arena_bytes_max = 64 << 20, .argument_bytes_max = 128 << 20});
    const Channel channel = memory.client(), other = memory.client();
    CHECK(memory.calls(channel, 1, 8, 24 << 20) == 1);  // Its block stays exposed to the client.
    std::vector<CallOutcome> outcomes(1);
    memory.call(other, 48 << 20, 8, outcomes[0], 2s);
    CHECK(memory.finish(outcomes) == 1);
}

TEST_CASE("memory for large bodies: a larger idle block is used when the arena is full") {
    Memory memory({}, {.arena_bytes_max = 40 << 20, .argument_bytes_max = 128 << 20});
    const Channel channel = memory.client();
    CHECK(memory.calls(channel, 1, 8, 28 << 20) == 1);
    const Buffer users = memory.server.allocate(8 << 20).value();
    CHECK(memory.calls(channel, 1, 8, 14 << 20) == 1);
}

TEST_CASE("memory for large bodies: a refusal names the limit, of the arena or of bodies") {
    Sized others[2];  // Outlive the runtimes that serve them.
    Memory memory;
    Runtime& client =
        memory.rig.add("", {.arena_bytes_max = 40 << 20, .argument_bytes_max = 128 << 20});
    const Channel channel = client.connect("sim://server").value();
    const Buffer users = client.allocate(32 << 20).value();
    std::vector<CallOutcome> outcomes(1);
    memory.call(channel, 16 << 20, 8, outcomes[0], 5s);
    CHECK(memory.finish(outcomes) == 0);
    CHECK(outcomes[0].status.code() == Code::resource_exhausted);
    CHECK_THAT(std::string(outcomes[0].status.text()), Catch::Contains("WEFT_ARENA"));

    // The limit is eight of the largest bodies in all, four for one server.
    Runtime& small = memory.rig.add("", {.argument_bytes_max = body_bytes_max});
    for (int i = 0; i < 2; ++i) {
        REQUIRE(memory.rig.add("other" + std::to_string(i)).add(others[i]).ok());
    }
    std::vector<CallOutcome> many(9);
    for (std::size_t i = 0; i < many.size(); ++i) {
        const char* const to[] = {"sim://server", "sim://other0", "sim://other1"};
        Memory::call(small.connect(to[i / 4]).value(), body_bytes_max, 8, many[i]);
    }
    memory.finish(many);
    CHECK(many[8].status.code() == Code::resource_exhausted);
    CHECK_THAT(std::string(many[8].status.text()), Catch::Contains("WEFT_ARGUMENT"));
}

TEST_CASE("memory for large bodies: a body that never fits the arena is refused at once") {
    Memory memory({}, {.arena_bytes_max = 4 << 20, .argument_bytes_max = 128 << 20});
    const Channel channel = memory.client();
    std::vector<CallOutcome> outcomes(2);
    const TimePoint before = memory.rig.clock->now();
    memory.call(channel, 10 << 20, 8, outcomes[0], 5s);
    memory.call(channel, 300 << 10, 8, outcomes[1], 5s);  // The refused call does not hold it up.
    CHECK(memory.finish(outcomes) == 1);
    CHECK(memory.rig.clock->now() - before < 100ms);
    CHECK(outcomes[1].status.ok());
    CHECK(outcomes[0].status.code() == Code::resource_exhausted);
    CHECK(outcomes[0].status.effect() == Effect::none);
    CHECK_THAT(std::string(outcomes[0].status.text()), Catch::Contains("WEFT_ARENA"));

    Runtime& small =
        memory.rig.add("", {.arena_bytes_max = 1 << 20, .argument_bytes_max = 128 << 20});
    std::vector<CallOutcome> reply(1);
    const Channel to_small = small.connect("sim://server").value();
    memory.call(to_small, 8, 2 << 20, reply[0], 5s);
    CHECK(memory.finish(reply) == 0);
    CHECK(reply[0].status.code() == Code::resource_exhausted);
    CHECK(reply[0].status.effect() == Effect::applied);
}

TEST_CASE("memory for large bodies: a call waits for the arena until the user frees memory") {
    Memory memory({}, {.arena_bytes_max = 40 << 20, .argument_bytes_max = 128 << 20});
    const Channel channel = memory.client();
    Buffer users = memory.server.allocate(32 << 20).value();
    std::vector<CallOutcome> outcomes(1);
    memory.call(channel, 16 << 20, 8, outcomes[0], 5s);
    memory.rig.run_for(1s);
    CHECK(outcomes[0].completions == 0);
    users = Buffer();
    CHECK(memory.finish(outcomes) == 1);
}

TEST_CASE("memory for large bodies: a waiting request is served when replies are returned") {
    // Larger than the idle limit: such a block returns to the arena after its fence.
    constexpr std::size_t bytes = 40 << 20;
    Memory memory({}, {.argument_bytes_max = bytes});
    const Channel channels[] = {memory.client(), memory.client(), memory.client()};
    std::vector<CallOutcome> outcomes(9);
    for (std::size_t i = 0; i < 8; ++i) memory.call(channels[i / 4], 8, bytes, outcomes[i]);
    REQUIRE(memory.rig.run_until([&] { return memory.rendezvous().bytes_held() >= 8 * bytes; }));
    memory.call(channels[2], bytes, 8, outcomes[8]);
    CHECK(memory.finish(outcomes) == 9);
}

TEST_CASE("memory for large bodies: a peer at its share holds up no other peer") {
    Memory memory;
    const Channel channel = memory.client();
    RawPeer raw(memory.rig);
    // Four replies that are never returned: the share of one peer.
    const auto ask = [&](std::uint32_t call) {
        rpc::RequestHeader header;
        header.call = {call, 1};
        header.remaining_us = 50'000;
        header.method = sized.hash;
        return frame_of(header, body_of(8, body_bytes_max));
    };
    raw.connect("server");
    for (std::uint32_t i = 0; i < 4; ++i) {
        REQUIRE(raw.send(ask(i)));
        raw.wait();
    }
    CHECK(memory.rendezvous().bytes_in_use() >= 4 * body_bytes_max);
    // One more of its bodies waits longer than the rest of the test takes.
    rpc::RequestHeader header;
    header.call = {9, 1};
    header.remaining_us = 500'000;
    header.method = sized.hash;
    const RegionRef ref = Victim::rendezvous_ref(raw.incarnation, body_bytes_max);
    REQUIRE(raw.send(Victim::as_rendezvous(frame_of(header), ref, 1)));
    raw.wait();
    // Other peers do not wait behind it.
    CHECK(memory.calls(channel, 3, 640 << 10, 8) == 3);
    CHECK(memory.calls(channel, 3, 8, 640 << 10) == 3);
    CHECK_FALSE(raw.lost);
}

TEST_CASE("memory for large bodies: memory of a cancelled fetch counts until its fence") {
    na::sim::WorldOptions slow;
    slow.piece_time = 10ms;  // A body takes seconds.
    Memory memory(slow);
    const Channel channel = memory.client();
    std::vector<CallOutcome> outcomes(40);
    std::size_t most = 0;
    for (CallOutcome& outcome : outcomes) {
        memory.call(channel, body_bytes_max, 8, outcome, 50ms);
        memory.rig.run_for(30ms);
        most = std::max(most, node_of(memory.server).commons.arena->allocated_bytes());
        CHECK(memory.rendezvous().bytes_held() >=
              node_of(memory.server).commons.arena->allocated_bytes());
    }
    CHECK(memory.finish(outcomes) == 0);
    CHECK(node_of(memory.server).bulk.transfers.quarantined() > 0);
    CHECK(most <= 4 * body_bytes_max);
    memory.rig.run_for(60s);
    CHECK(node_of(memory.server).bulk.transfers.quarantined() == 0);
    CHECK(memory.rendezvous().bytes_held() == 0);
    CHECK(memory.calls(channel, 1, body_bytes_max, 8) == 1);
    CHECK(memory.rendezvous().bytes_held() > 0);
    CHECK(memory.rendezvous().bytes_in_use() == 0);
}

TEST_CASE("memory for large bodies: a small body starts when a larger one before it expires") {
    na::sim::WorldOptions slow;
    slow.piece_time = 10ms;  // The largest takes 2.5 s.
    Memory memory(slow);
    const Channel channel = memory.client();
    // All but 128 KiB of the peer's share.
    std::vector<CallOutcome> large(4);
    for (std::size_t i = 0; i < 4; ++i) {
        memory.call(channel, i == 0 ? 896 << 10 : body_bytes_max, 8, large[i]);
    }
    CallOutcome too_large, small;
    memory.call(channel, body_bytes_max, 8, too_large, 50ms);
    memory.call(channel, 70 << 10, 8, small, 1s);
    REQUIRE(memory.rig.run_until([&] { return small.completions > 0; }));
    CHECK(too_large.status.code() == Code::deadline_exceeded);
    INFO(small.status.to_string());
    CHECK(small.status.ok());
    CHECK(large[1].completions == 0);
    CHECK(memory.finish(large) == 4);
}

namespace {

// A peer that answers nothing exposes one byte with each of `count` requests. A block for each, up
// to half of all, waits for a fetch that never completes.
struct TinyBodies {
    TinyBodies(Memory& memory, const std::string& name, std::uint32_t count)
        : raw(memory.rig, name) {
        REQUIRE(memory.rig.world->ignore_rma(name));
        raw.connect("server");
        const RegionRef ref = Victim::rendezvous_ref(raw.incarnation, 1);
        for (std::uint32_t i = 0; i < count; ++i) {
            rpc::RequestHeader header;
            header.call = {i, 1};
            header.remaining_us = 60'000'000;
            header.method = sized.hash;
            REQUIRE(raw.send(Victim::as_rendezvous(frame_of(header), ref, i + 1)));
            if (i % 100 == 0) raw.wait();
        }
        raw.wait();
    }
    static constexpr std::size_t block_bytes = 64 << 10;
    RawPeer raw;
};

}  // namespace

TEST_CASE("memory for large bodies: tiny bodies of a silent peer hold up no other peer") {
    Memory memory({}, {.argument_bytes_max = 128 << 20});
    const Channel channel = memory.client();
    const TinyBodies tiny(memory, "raw", 1024);
    CHECK(memory.rendezvous().bytes_held() == 512 * TinyBodies::block_bytes);
    std::vector<CallOutcome> outcomes(2);
    memory.call(channel, 1 << 20, 8, outcomes[0], 1s);
    memory.call(channel, 8, 1 << 20, outcomes[1], 1s);
    CHECK(memory.finish(outcomes) == 2);
}

TEST_CASE("memory for large bodies: idle blocks hold up no call when no block is left") {
    Memory memory({}, {.argument_bytes_max = 128 << 20});
    const Channel channel = memory.client(), other = memory.client();
    CHECK(memory.calls(channel, 40, 8, 80 << 10) == 40);
    const TinyBodies tiny[] = {{memory, "one", 512}, {memory, "another", 500}};
    CHECK(memory.rendezvous().bytes_held() >= 1012 * TinyBodies::block_bytes);
    std::vector<CallOutcome> outcomes(2);
    memory.call(other, 1 << 20, 8, outcomes[0], 1s);
    memory.call(other, 8, 1 << 20, outcomes[1], 1s);
    CHECK(memory.finish(outcomes) == 2);
}

TEST_CASE("memory for large bodies: silent holders of all of it lose it to a waiting peer") {
    std::vector<CallOutcome> held(8);
    Memory memory;
    const Channel silent[] = {memory.client("a"), memory.client("b")};
    for (const char* name : {"a", "b"}) REQUIRE(memory.rig.world->ignore_rma(name));
    for (std::size_t i = 0; i < 8; ++i) {
        memory.call(silent[i / 4], body_bytes_max, 8, held[i], 60s);
    }
    const Channel channel = memory.client();
    REQUIRE(memory.rig.run_until(
        [&] { return memory.rendezvous().bytes_held() == 8 * body_bytes_max; }));
    CHECK(memory.calls(channel, 1, body_bytes_max, 8) == 1);
    // The disconnected client reconnects, and its calls fail as never begun.
    CHECK(memory.rig.run_until(
        [&] {
            return std::count_if(held.begin(), held.end(), [](const CallOutcome& one) {
                       return one.status.code() == Code::unavailable;
                   }) >= 4;
        },
        3s));
}

TEST_CASE("memory for large bodies: a peer that waits for its own share ends no transfer") {
    std::vector<CallOutcome> held(6);  // Four are a share.
    Memory memory;
    const Channel slow = memory.client("slow"), greedy = memory.client("greedy");
    for (const char* name : {"slow", "greedy"}) REQUIRE(memory.rig.world->ignore_rma(name));
    for (std::size_t i = 0; i < 6; ++i) {
        memory.call(i == 0 ? slow : greedy, body_bytes_max, 8, held[i], 120s);
    }
    memory.rig.run_for(30s);
    for (const CallOutcome& one : held) CHECK(one.completions == 0);
    // Transfers end only when another peer waits, too.
    CHECK(memory.rendezvous().bytes_held() == 5 * body_bytes_max);
    const Channel channel = memory.client();
    CHECK(memory.calls(channel, 8, body_bytes_max, 8) == 8);
}

TEST_CASE("memory for large bodies: silent holders lose it when a first waiter has expired") {
    std::vector<CallOutcome> held(9), waiting(2);
    na::sim::WorldOptions slow;
    slow.piece_time = 500ms;  // A reply of half a body is on its way for a minute.
    Memory memory(slow);
    const Channel silent[] = {memory.client("a"), memory.client("b")}, channel = memory.client();
    for (const char* name : {"a", "b"}) REQUIRE(memory.rig.world->ignore_rma(name));
    // Replies that the client still reads hold all but half a body of its share; others hold the
    // rest.
    constexpr std::size_t whole = body_bytes_max, half = whole / 2;
    for (std::size_t i = 0; i < 4; ++i) {
        memory.call(channel, 8, i == 0 ? half : whole, held[i], 500s);
    }
    for (std::size_t i = 4; i < 9; ++i) {
        memory.call(silent[i / 8], i == 8 ? half : whole, 8, held[i], 500s);
    }
    REQUIRE(memory.rig.run_until([&] { return memory.rendezvous().bytes_held() == 8 * whole; }));
    memory.call(channel, whole, 8, waiting[0], 3s);        // Waits for its own share.
    memory.call(channel, whole / 4, 8, waiting[1], 500s);  // Waits for memory of others.
    memory.rig.run_for(20s);
    CHECK(waiting[0].status.code() == Code::deadline_exceeded);
    CHECK(std::count_if(held.begin(), held.end(), [](const CallOutcome& one) {
              return one.status.code() == Code::unavailable;
          }) >= 4);
}

TEST_CASE("memory for large bodies: idle blocks are freed at once for two waiters of one turn") {
    std::vector<CallOutcome> held(5), outcomes(2);
    Memory memory;
    const Channel holders[] = {memory.client("a"), memory.client("b")};
    const Channel channel = memory.client(), one = memory.client(), another = memory.client();
    // Idle: a block that its peer may read, and then two that no peer may read.
    CHECK(memory.calls(channel, 1, 8, body_bytes_max) == 1);
    CHECK(memory.calls(channel, 2, 512 << 10, 8) == 2);
    CHECK(memory.rendezvous().bytes_held() == 2 * body_bytes_max);
    // Five that are not returned.
    for (const char* name : {"a", "b"}) REQUIRE(memory.rig.world->ignore_rma(name));
    for (std::size_t i = 0; i < 5; ++i) {
        memory.call(holders[i % 2], 8, body_bytes_max, held[i], 60s);
    }
    memory.rig.run_for(1s);
    CHECK(memory.rendezvous().bytes_held() == 7 * body_bytes_max);
    memory.call(one, 8, body_bytes_max, outcomes[0]);
    memory.call(another, 8, body_bytes_max, outcomes[1]);
    CHECK(memory.finish(outcomes) == 2);
}

TEST_CASE("memory for large bodies: a waiter ends no transfer that holds none of it") {
    na::sim::WorldOptions slow;
    slow.piece_time = 30ms;    // A body takes 7.5 s.
    slow.rma_checked = false;  // A user's transfer has a grant, too.
    bool is_over = false;      // Outlives the runtimes: their end completes the transfer.
    Memory memory(slow);
    Runtime& owner = memory.rig.add("owner");
    const Buffer owned = owner.allocate(body_bytes_max).value();
    const Region region = owner.expose(owned, {.access = Access::read}).value();
    REQUIRE(memory.rig.world->ignore_rma("owner"));
    const Buffer into = memory.server.allocate(body_bytes_max).value();
    const Channel to_owner = memory.server.connect("sim://owner").value();
    to_owner.get(region.ref(0, body_bytes_max), 0, into, {.timeout = 60s},
                 [&](const Status&) { is_over = true; });
    const Channel channel = memory.client();
    std::vector<CallOutcome> outcomes(16);  // Four at a time.
    for (CallOutcome& outcome : outcomes) memory.call(channel, body_bytes_max, 8, outcome, 60s);
    memory.rig.run_for(15s);
    CHECK(outcomes.back().completions == 0);
    CHECK_FALSE(is_over);
    CHECK(memory.finish(outcomes) == 16);
}

TEST_CASE("memory for large bodies: a body that arrives behind waiting ones waits, too") {
    Memory memory({}, {.arena_bytes_max = 40 << 20, .argument_bytes_max = 128 << 20});
    const Channel channel = memory.client();
    std::vector<CallOutcome> outcomes(2);
    Buffer users = memory.server.allocate(36 << 20).value();
    memory.call(channel, 16 << 20, 8, outcomes[0], 60s);
    memory.rig.run_for(5ms);
    CHECK(memory.rendezvous().bytes_held() == 0);
    // Nothing of the arena is in use any more, and the first has not begun yet.
    users = {};
    memory.call(channel, 16 << 20, 8, outcomes[1], 60s);
    CHECK(memory.finish(outcomes) == 2);
}
