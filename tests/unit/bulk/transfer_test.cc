#include <algorithm>

#include "support/catch.h"
#include "support/sim_rig.h"

using namespace weft;
using test::SimRig;

namespace {

constexpr MethodId pull("test.Bulk/Pull");
constexpr MethodId get_ref("test.Bulk/Lend");
constexpr MethodId nothing("test.Bulk/Nothing");

void fill(Bytes bytes, unsigned seed) {
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        bytes[i] = static_cast<std::byte>((i * 31 + i / 251 + seed) & 0xff);
    }
}

// Both directions: reads the client's memory into its own, and exposes its own.
struct Store final : Service {
    Buffer memory;
    Region region;
    Status pulled;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(pull, [this](Call call) {
            const RegionRef ref = RegionRef::decode(call.request()).value();
            auto kept = std::make_shared<Call>(std::move(call));
            kept->get(ref, 0, memory.slice(0, ref.length), [this, kept](const Status& status) {
                pulled = status;
                if (status.ok()) kept->reply(ByteView{});
                else kept->fail(status);
            });
        });
        registrar.add(get_ref, [this](Call call) {
            std::array<std::byte, RegionRef::wire_bytes> bytes;
            region.ref().encode(bytes);
            call.reply(bytes);
        });
        registrar.add(nothing, [](Call call) { call.reply(ByteView{}); });
    }
};

struct Result1 {
    int completions = 0;
    Status status;
    std::vector<std::byte> reply;
    TransferCompletion transfer() {
        return [this](const Status& with) {
            ++completions;
            status = with;
        };
    }
    Completion call() {
        return [this](const Status& with, ByteView body) {
            ++completions;
            status = with;
            reply.assign(body.begin(), body.end());
        };
    }
};

struct BulkPair {
    explicit BulkPair(bool checked, Duration piece_time = 500ns,
                      std::uint32_t connection_messages_max = 256)
        : rig(7, {.piece_time = piece_time,
                  .connection_messages_max = connection_messages_max,
                  .joins_commits = connection_messages_max == 256,
                  .rma_checked = checked}) {
        REQUIRE(server.add(service).ok());
        service.memory = server.allocate(8 << 20).value();
        channel = client.connect("sim://server").value();
    }
    ~BulkPair() { CHECK(rig.world->late_accesses() == 0); }

    RegionRef expose_and_get_ref(Access access, Duration lease = {}) {
        service.region = server.expose(service.memory, {.access = access, .lease = lease}).value();
        Result1 result;
        channel.call(get_ref, {}, {}, result.call());
        REQUIRE(rig.run_until([&] { return result.completions > 0; }));
        REQUIRE(result.status.ok());
        return RegionRef::decode(result.reply).value();
    }
    Status get(const RegionRef& ref, std::uint64_t offset, Buffer local, CallOptions options = {}) {
        Result1 result;
        channel.get(ref, offset, local, options, result.transfer());
        CHECK(result.completions == 0);
        REQUIRE(rig.run_until([&] { return result.completions > 0; }));
        CHECK(result.completions == 1);
        return result.status;
    }
    Status put(const RegionRef& ref, std::uint64_t offset, Buffer local) {
        Result1 result;
        channel.put(ref, offset, local, {}, result.transfer());
        REQUIRE(rig.run_until([&] { return result.completions > 0; }));
        CHECK(result.completions == 1);
        return result.status;
    }

    Store service;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    Channel channel;
};

}  // namespace

TEST_CASE("a client reads and writes a region of the server") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    fill(pair.service.memory.bytes(), 1);
    const RegionRef ref = pair.expose_and_get_ref(Access::read_write);
    Buffer local = pair.client.allocate(3'000'001).value();
    REQUIRE(pair.get(ref, 12'345, local).ok());
    CHECK(std::equal(local.bytes().begin(), local.bytes().end(),
                     pair.service.memory.data() + 12'345));
    fill(local.bytes(), 99);
    REQUIRE(pair.put(ref, 77, local).ok());
    CHECK(std::equal(local.bytes().begin(), local.bytes().end(), pair.service.memory.data() + 77));
    // Nothing outside the range was touched.
    CHECK(pair.service.memory.data()[76] == static_cast<std::byte>((76 * 31 + 1) & 0xff));
}

TEST_CASE("a server pulls from the client's memory inside a handler") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    Buffer mine = pair.client.allocate(2'500'000).value();
    fill(mine.bytes(), 5);
    Region region = pair.client.expose(mine, {.access = Access::read}).value();
    std::array<std::byte, RegionRef::wire_bytes> bytes;
    region.ref().encode(bytes);
    Result1 result;
    pair.channel.call(pull, bytes, {}, result.call());
    REQUIRE(pair.rig.run_until([&] { return result.completions > 0; }));
    INFO(result.status.to_string());
    REQUIRE(result.status.ok());
    CHECK(std::equal(mine.bytes().begin(), mine.bytes().end(), pair.service.memory.data()));
}

TEST_CASE("a forbidden access fails with PERMISSION_DENIED and leaves the connection open") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    const RegionRef ref = pair.expose_and_get_ref(Access::read);
    Buffer local = pair.client.allocate(4096).value();
    auto denied = [&](RegionRef bad, std::uint64_t offset) {
        const Status status = pair.get(bad, offset, local);
        INFO(status.to_string());
        CHECK(status.code() == Code::permission_denied);
        CHECK(status.effect() == Effect::none);
        CHECK(!status.text().empty());
    };
    denied(ref, ref.length - 4095);
    denied(ref, UINT64_MAX - 5);
    RegionRef bad = ref;
    bad.key ^= 1;
    denied(bad, 0);
    bad = ref;
    ++bad.generation;
    denied(bad, 0);
    bad = ref;
    bad.region = 4095;
    denied(bad, 0);
    bad = ref;
    bad.region = 1'000'000;
    denied(bad, 0);
    bad = ref;
    bad.owner ^= 1;
    denied(bad, 0);
    bad = ref;  // The owner checks a forged longer range.
    bad.length = ref.length * 2;
    denied(bad, ref.length - 1);
    bad = ref;  // The owner checks a forged right.
    bad.access = Access::read_write;
    CHECK(pair.put(bad, 0, local).code() == Code::permission_denied);
    CHECK(pair.put(ref, 0, local).code() == Code::permission_denied);
    CHECK(pair.get(ref, 0, local).ok());
}

TEST_CASE("a closed region is refused, and its memory is free after the fence") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    const RegionRef ref = pair.expose_and_get_ref(Access::read);
    Buffer local = pair.client.allocate(4 << 20).value();
    // In flight: the transfer completes or is revoked.
    Result1 result;
    pair.channel.get(ref, 0, local, {}, result.transfer());
    pair.rig.run_for(60us);
    bool fenced = false;
    pair.service.region.close([&] { fenced = true; });
    REQUIRE(pair.rig.run_until([&] { return fenced && result.completions > 0; }));
    CHECK((result.status.ok() || result.status.code() == Code::permission_denied));
    CHECK(pair.get(ref, 0, local).code() == Code::permission_denied);
    CHECK(node_of(pair.server).bulk.regions->open_regions() == 0);
}

TEST_CASE("expose() is refused on a transport that can't fence memory") {
    SimRig rig(1, {.rma_checked = false, .fences_region = false});
    Runtime& server = rig.add("server");
    const Result<Region> region =
        server.expose(server.allocate(4096).value(), {.access = Access::read});
    REQUIRE_FALSE(region.ok());
    CHECK(region.status().code() == Code::unimplemented);
    CHECK(region.status().text().find("sim can't fence memory") != std::string_view::npos);
    CHECK(node_of(server).bulk.regions->open_regions() == 0);
}

TEST_CASE("a region closes when its lease expires") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    const RegionRef ref = pair.expose_and_get_ref(Access::read, 50ms);
    Buffer local = pair.client.allocate(4096).value();
    CHECK(pair.get(ref, 0, local).ok());
    pair.rig.run_for(60ms);
    CHECK(pair.get(ref, 0, local).code() == Code::permission_denied);
    CHECK(node_of(pair.server).bulk.regions->open_regions() == 0);
    pair.service.region.close();  // Closing it again is harmless.
}

TEST_CASE("a lease counts from expose() and can't be negative") {
    BulkPair pair(true);
    // No turns for a while, as in a program that turns the runtime by hand.
    pair.rig.clock->advance(10s);
    bool ended = false;
    Region region =
        pair.server
            .expose(pair.server.allocate(4096).value(), {.access = Access::read, .lease = 2s})
            .value();
    pair.rig.run_for(1900ms);
    CHECK(node_of(pair.server).bulk.regions->open_regions() == 1);
    pair.rig.run_for(200ms);
    CHECK(node_of(pair.server).bulk.regions->open_regions() == 0);
    region.close([&] { ended = true; });
    CHECK(ended);
    CHECK(pair.server
              .expose(pair.server.allocate(4096).value(), {.access = Access::read, .lease = -1s})
              .status()
              .code() == Code::invalid_argument);
}

TEST_CASE("a grant is closed when the queue to its owner is full, and no other call fails") {
    // The transfer ends while calls fill the queue, or a little before or after.
    for (const Duration until_full : {0us, 8us, 12us, 16us, 20us, 40us}) {
        INFO("full after " << until_full.count() << " ns");
        BulkPair pair(false, 500ns, 4);
        const RegionRef ref = pair.expose_and_get_ref(Access::read);
        Result1 transfer;
        pair.channel.get(ref, 0, pair.client.allocate(100'000).value(), {}, transfer.transfer());
        pair.rig.run_for(until_full);
        int calls = 0, ok = 0, full = 0, other = 0;
        const auto call_often = [&](int times) {
            calls += times;
            for (; times > 0; --times) {
                pair.channel.call(get_ref, {}, {.timeout = 60s},
                                  [&](const Status& status, ByteView) {
                                      ++(status.ok()                                 ? ok
                                         : status.code() == Code::resource_exhausted ? full
                                                                                     : other);
                                  });
            }
        };
        call_often(17'000);
        while (transfer.completions == 0) {  // More than the link transmits meanwhile.
            pair.rig.run_for(1us);
            call_often(10);
        }
        REQUIRE(pair.rig.run_until([&] { return ok + full + other == calls; }));
        CHECK(other == 0);
        CHECK(full > 600);
        INFO(transfer.status.to_string());
        CHECK((transfer.status.ok() || transfer.status.code() == Code::resource_exhausted));
        bool fenced = false;
        pair.service.region.close([&] { fenced = true; });
        pair.rig.run_for(100ms);
        CHECK(fenced);
        CHECK(pair.get(ref, 0, pair.client.allocate(10).value()).code() ==
              Code::permission_denied);  // The channel works.
    }
}

TEST_CASE("a deadline completes the transfer, and its buffer is held until the network is done") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked, 20us);  // A slow network.
    const RegionRef ref = pair.expose_and_get_ref(Access::read);
    std::weak_ptr<int> alive;
    {
        auto token = std::make_shared<int>(0);
        alive = token;
        static std::vector<std::byte> memory(8 << 20);
        Buffer local = Buffer::adopt(memory, [token] {});
        token.reset();
        const Status status = pair.get(ref, 0, std::move(local), {.timeout = 1ms});
        CHECK(status.code() == Code::deadline_exceeded);
    }
    CHECK(!alive.expired());
    CHECK(node_of(pair.client).bulk.transfers.quarantined() == 1);
    pair.rig.run_for(1s);
    CHECK(alive.expired());
    CHECK(node_of(pair.client).bulk.transfers.quarantined() == 0);
}

TEST_CASE("a cancelled transfer completes once with CANCELLED") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    const RegionRef ref = pair.expose_and_get_ref(Access::read);
    Buffer local = pair.client.allocate(4 << 20).value();
    Result1 result;
    const OperationId id = pair.channel.get(ref, 0, local, {}, result.transfer());
    pair.rig.run_for(60us);
    pair.channel.cancel_transfer(id);
    CHECK(result.completions == 0);
    pair.rig.run_for(1s);
    CHECK(result.completions == 1);
    CHECK(result.status.code() == Code::cancelled);
    CHECK(node_of(pair.client).bulk.transfers.quarantined() == 0);
}

TEST_CASE("a dead owner ends a transfer with UNAVAILABLE, and a dead holder frees the region") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    const RegionRef ref = pair.expose_and_get_ref(Access::read_write);
    Buffer local = pair.client.allocate(4 << 20).value();
    SECTION("owner") {
        Result1 result;
        pair.channel.put(ref, 0, local, {}, result.transfer());
        pair.rig.run_for(60us);
        pair.rig.kill("server");
        pair.rig.run_for(3s);
        CHECK(result.completions == 1);
        CHECK(result.status.code() == Code::unavailable);
        CHECK(result.status.effect() == Effect::unknown);
        CHECK(node_of(pair.client).bulk.transfers.quarantined() == 0);
    }
    SECTION("holder") {
        Result1 result;
        pair.channel.put(ref, 0, local, {}, result.transfer());
        pair.rig.run_for(60us);
        bool fenced = false;
        pair.service.region.close([&] { fenced = true; });
        pair.rig.runtimes.pop_back();
        REQUIRE(pair.rig.run_until([&] { return fenced; }));
    }
}

TEST_CASE("a transfer may be the first operation of a channel") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    const RegionRef ref = pair.expose_and_get_ref(Access::read);
    Channel fresh = pair.client.connect("sim://server").value();
    Buffer local = pair.client.allocate(4096).value();
    Result1 result;
    fresh.get(ref, 0, local, {}, result.transfer());
    REQUIRE(pair.rig.run_until([&] { return result.completions > 0; }));
    CHECK(result.status.ok());
    Channel unserved = pair.client.connect("sim://unserved").value();
    Result1 refused;
    unserved.get(ref, 0, local, {}, refused.transfer());
    REQUIRE(pair.rig.run_until([&] { return refused.completions > 0; }));
    CHECK(refused.status.code() == Code::unavailable);
    CHECK(refused.status.effect() == Effect::none);
}

TEST_CASE("many transfers share the transport's depth and all end") {
    const bool checked = GENERATE(true, false);
    BulkPair pair(checked);
    fill(pair.service.memory.bytes(), 3);
    const RegionRef ref = pair.expose_and_get_ref(Access::read);
    std::vector<Buffer> locals;
    std::vector<Result1> results(50);
    for (int i = 0; i < 50; ++i) {
        locals.push_back(pair.client.allocate(100'000 + i * 7'777).value());
        pair.channel.get(ref, i * 1000, locals.back(), {}, results[i].transfer());
    }
    REQUIRE(pair.rig.run_until([&] {
        return std::all_of(results.begin(), results.end(),
                           [](const Result1& result) { return result.completions == 1; });
    }));
    for (int i = 0; i < 50; ++i) {
        REQUIRE(results[i].status.ok());
        REQUIRE(std::equal(locals[i].bytes().begin(), locals[i].bytes().end(),
                           pair.service.memory.data() + i * 1000));
    }
}

TEST_CASE("a region without access, without memory or beyond the table's limit is refused") {
    BulkPair pair(true);
    CHECK(pair.server.expose({}, {}).status().code() == Code::invalid_argument);
    CHECK(pair.server.expose(pair.service.memory, {.access = Access::none}).status().code() ==
          Code::invalid_argument);
    std::vector<Region> regions;
    for (std::uint32_t i = 0; i < bulk::Regions::user_regions_max; ++i) {
        regions.push_back(pair.server.expose(pair.service.memory, {}).value());
    }
    CHECK(pair.server.expose(pair.service.memory, {}).status().code() == Code::resource_exhausted);
    regions.clear();
    pair.rig.run_until_idle();
    CHECK(pair.server.expose(pair.service.memory, {}).ok());
}

TEST_CASE("RegionRef::decode() refuses garbage") {
    CHECK(!RegionRef::decode({}).ok());
    std::array<std::byte, RegionRef::wire_bytes> bytes{};
    CHECK(RegionRef::decode(bytes).status().code() == Code::permission_denied);
    RegionRef ref;
    ref.encode(bytes);
    CHECK(RegionRef::decode(bytes).ok());
    bytes[1] = std::byte{9};
    CHECK(!RegionRef::decode(bytes).ok());
}
