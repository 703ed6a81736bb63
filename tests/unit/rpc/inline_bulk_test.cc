// Inline bulk: small ranges inside the messages of their call.
#include <sys/mman.h>

#include <algorithm>
#include <thread>

#include <weft/await.h>
#include <weft/task.h>

#include "api/runtime_impl.h"
#include "bulk/wire.h"
#include "rpc/inline_bulk.h"
#include "support/raw_echo.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId pull("test.Ride/Pull");    // Replies with the named bytes.
constexpr MethodId push("test.Ride/Push");    // Fills the named bytes with 'p'.
constexpr MethodId both("test.Ride/Both");    // Puts "new" at 0, then replies with the bytes.
constexpr MethodId later("test.Ride/Later");  // Keeps the call for the test.

struct InlineBulkService final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(pull, [this](Call call) { read(std::move(call)); });
        registrar.add(push, [this](Call call) {
            const RegionRef to = RegionRef::decode(call.request()).value();
            const Buffer from = runtime->allocate(to.length).value();
            std::memset(from.data(), 'p', from.size());
            write(std::move(call), to, from, [](Call answered, const Status& status) {
                status.ok() ? answered.reply(as_bytes("done")) : answered.fail(status);
            });
        });
        registrar.add(both, [this](Call call) {
            const RegionRef to = RegionRef::decode(call.request()).value();
            const Buffer from = runtime->allocate(3).value();
            std::memcpy(from.data(), "new", 3);
            write(std::move(call), to, from, [this](Call written, const Status& status) {
                status.ok() ? read(std::move(written)) : written.fail(status);
            });
        });
        registrar.add(later, [this](Call call) { held.push_back(std::move(call)); });
    }
    void read(Call call) {
        const RegionRef from = named.length ? named : RegionRef::decode(call.request()).value();
        Buffer into = runtime->allocate(from.length).value();
        auto shared = std::make_shared<Call>(std::move(call));
        shared->get(from, 0, into, [shared, into](const Status& status) {
            status.ok() ? shared->reply(into.bytes()) : shared->fail(status);
        });
    }
    template <class Then>
    void write(Call call, const RegionRef& to, const Buffer& from, Then then) {
        auto shared = std::make_shared<Call>(std::move(call));
        shared->put(to, 0, from,
                    [shared, then](const Status& status) { then(std::move(*shared), status); });
    }
    Runtime* runtime = nullptr;
    RegionRef named;  // If set, read() reads this instead of the request's reference.
    std::vector<Call> held;
};

struct InlineBulkPair {
    explicit InlineBulkPair(bool checked = true) : rig(1, {.rma_checked = checked}) {
        service.runtime = &server;
        REQUIRE(server.add(service).ok());
        channel = client.connect("sim://server").value();
        CallOutcome warm;
        channel.call(MethodId("weft.Node/Ping"), as_bytes("x"), {}, warm.done());
        REQUIRE(rig.run_until([&] { return warm.completions > 0; }));
    }
    Region expose(std::size_t bytes, Access access = Access::read_write) {
        memory = client.allocate(bytes).value();
        for (std::size_t i = 0; i < bytes; ++i) memory.data()[i] = pattern(i);
        return client.expose(memory, {.access = access}).value();
    }
    static std::byte pattern(std::size_t i) { return static_cast<std::byte>(i * 7 + 1); }
    static bool is_pattern(ByteView bytes) {
        for (std::size_t i = 0; i < bytes.size(); ++i) {
            if (bytes[i] != pattern(i)) return false;
        }
        return true;
    }
    void start(const MethodId& method, const RegionRef& ref, bool inline_bulk,
               CallOutcome& outcome) {
        std::array<std::byte, RegionRef::wire_bytes> body;
        ref.encode(body);
        began = rig.clock->now();
        channel.call(method, body, {.inline_bulk = inline_bulk ? &ref : nullptr}, outcome.done());
    }
    CallOutcome finish(CallOutcome& outcome) {
        REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
        took = rig.clock->now() - began;
        return outcome;
    }
    CallOutcome call(const MethodId& method, const RegionRef& ref, bool inline_bulk) {
        CallOutcome outcome;
        start(method, ref, inline_bulk, outcome);
        return finish(outcome);
    }

    InlineBulkService service;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    Channel channel;
    Buffer memory;
    TimePoint began;
    Duration took{};
};

constexpr Duration one_trip = 2 * 5us;  // Both ways in this network.

}  // namespace

TEST_CASE("inline bulk costs one round trip for a get and for a put") {
    const bool checked = GENERATE(true, false);
    InlineBulkPair pair(checked);
    const Region region = pair.expose(4096);
    CHECK(InlineBulkPair::is_pattern(as_bytes(pair.call(pull, region.ref(), true).reply)));
    CHECK(pair.took == one_trip);
    CHECK(InlineBulkPair::is_pattern(as_bytes(pair.call(pull, region.ref(), false).reply)));
    CHECK(pair.took > one_trip);

    CHECK(pair.call(push, region.ref(), true).reply == "done");
    CHECK(pair.took == one_trip);
    CHECK(std::string(as_text(pair.memory.bytes())) == std::string(4096, 'p'));
    CHECK(pair.call(push, region.ref(), false).reply == "done");
    CHECK(pair.took > one_trip);
}

TEST_CASE("inline bulk carries the bytes of the region at the time of the call") {
    InlineBulkPair pair;
    Region region = pair.expose(1000, Access::read);
    CallOutcome rode, went;
    pair.start(pull, region.ref(), true, rode);
    std::memset(pair.memory.data(), 0, pair.memory.size());
    region.close();
    CHECK(InlineBulkPair::is_pattern(as_bytes(pair.finish(rode).reply)));
    pair.start(pull, region.ref(), false, went);
    CHECK(pair.finish(went).status.code() == Code::permission_denied);
}

TEST_CASE("a handler reads its own inline put before the client receives it") {
    InlineBulkPair pair;
    const Region region = pair.expose(64);
    std::string expected(as_text(pair.memory.bytes()));
    expected.replace(0, 3, "new");
    CHECK(pair.call(both, region.ref(), true).reply == expected);
    CHECK(pair.took == one_trip);
    CHECK(as_text(pair.memory.bytes()) == expected);
}

TEST_CASE("inline puts stay in order with transfers, and a get returns no stale inline bytes") {
    InlineBulkPair pair;
    const Region region = pair.expose(4096);
    const RegionRef part = region.ref(0, 100), all = region.ref();
    std::vector<std::string> told;
    const auto note = [&](const Status& status) { told.emplace_back(name_of(status.code())); };
    const Buffer small = pair.server.allocate(100).value(),
                 wide = pair.server.allocate(200).value();
    std::memset(wide.data(), 'w', wide.size());
    CallOutcome outcome;
    pair.start(later, part, true, outcome);
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    Call call = std::move(pair.service.held[0]);
    pair.service.held.clear();
    SECTION("a put beyond the inline range is a transfer, and later gets fetch") {
        call.put(all, 50, wide, note);
        pair.rig.run_for(1ms);
        call.get(part, 0, small, note);
        pair.rig.run_for(1ms);
        CHECK(told == std::vector<std::string>{"OK", "OK"});
        CHECK(small.data()[99] == std::byte{'w'});
    }
    SECTION("after an inline put, overlapping transfers are refused, others are not") {
        call.put(part, 0, small, note);
        call.put(all, 50, wide, note);
        call.get(all, 50, wide, note);
        call.get(all, 100, wide, note);
        pair.rig.run_for(1ms);
        std::sort(told.begin(), told.end());
        CHECK(told ==
              std::vector<std::string>{"FAILED_PRECONDITION", "FAILED_PRECONDITION", "OK", "OK"});
    }
    call.reply({});
    CHECK(pair.finish(outcome).status.ok());
}

TEST_CASE("inline bulk stays readable until its call ends") {
    InlineBulkPair pair;
    Region region = pair.expose(500, Access::read);
    CallOutcome outcome;
    pair.start(later, region.ref(), true, outcome);
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    pair.rig.run_for(1ms);
    pair.service.named = region.ref();
    region.close();
    pair.rig.run_for(1ms);
    pair.service.read(std::move(pair.service.held[0]));
    CHECK(InlineBulkPair::is_pattern(as_bytes(pair.finish(outcome).reply)));
    pair.service.held.clear();
    CHECK(node_of(pair.server).server.executing() == 0);
}

TEST_CASE("inline bulk serves only gets within its reference and with its access rights") {
    InlineBulkPair pair;
    const Region region = pair.expose(4096);
    RegionRef wide = region.ref(0, 2000), part = region.ref(100, 50);
    const RegionRef inline_bulk = region.ref(64, 1000);
    std::array<std::byte, RegionRef::wire_bytes> body;
    const auto ask = [&](const RegionRef& named) {
        named.encode(body);
        CallOutcome outcome;
        pair.began = pair.rig.clock->now();
        pair.channel.call(pull, body, {.inline_bulk = &inline_bulk}, outcome.done());
        return pair.finish(outcome);
    };
    CHECK(as_bytes(ask(part).reply)[0] == InlineBulkPair::pattern(100));  // Inside: inline.
    CHECK(pair.took == one_trip);
    CHECK(as_bytes(ask(wide).reply).size() == 2000);  // Beyond: fetched.
    CHECK(pair.took > one_trip);
    part.key ^= 2;
    CHECK(ask(part).status.code() == Code::permission_denied);
    part = region.ref(100, 50);
    part.access = Access::write;
    CHECK(ask(part).status.code() == Code::permission_denied);
    part = region.ref(100, 50);
    part.owner ^= 1;
    CHECK(ask(part).status.code() == Code::permission_denied);
}

TEST_CASE("bulk that does not fit inline is transferred") {
    InlineBulkPair pair;
    const std::size_t bytes = rpc::inline_bulk_bytes_max + GENERATE(0, 1);
    const Region region = pair.expose(bytes);
    CHECK(InlineBulkPair::is_pattern(as_bytes(pair.call(pull, region.ref(), true).reply)));
    CHECK((pair.took == one_trip) == (bytes <= rpc::inline_bulk_bytes_max));
    CHECK(pair.call(push, region.ref(), true).status.ok());
    CHECK(pair.memory.data()[bytes - 1] == std::byte{'p'});

    // Also with a body that fills the message.
    std::vector<std::byte> body(64 * 1024);
    region.ref().encode(std::span<std::byte, RegionRef::wire_bytes>(body.data(), 48));
    pair.service.named = region.ref();
    CallOutcome outcome;
    const RegionRef ref = region.ref();
    pair.channel.call(pull, body, {.inline_bulk = &ref}, outcome.done());
    CHECK(pair.finish(outcome).reply.size() == bytes);
    // A reference to no region of this client is not sent inline either.
    const RegionRef none;
    CallOutcome plain;
    pair.channel.call(MethodId("weft.Node/Ping"), as_bytes("x"), {.inline_bulk = &none},
                      plain.done());
    CHECK(pair.finish(plain).reply == "x");
}

TEST_CASE("inline bulk works with the first call and with calls of other threads") {
    InlineBulkService service;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    service.runtime = &server;
    REQUIRE(server.add(service).ok());
    const Channel channel = client.connect("sim://server").value();
    const Buffer memory = client.allocate(100).value();
    std::memset(memory.data(), 7, 100);
    const Region region = client.expose(memory, {}).value();
    const RegionRef ref = region.ref();
    std::array<std::byte, RegionRef::wire_bytes> body;
    ref.encode(body);
    CallOutcome first, handed;
    channel.call(pull, body, {.inline_bulk = &ref}, first.done());
    std::thread([&] { channel.call(pull, body, {.inline_bulk = &ref}, handed.done()); }).join();
    REQUIRE(rig.run_until([&] { return first.completions + handed.completions == 2; }));
    CHECK(first.reply == std::string(100, '\7'));
    CHECK(handed.reply == std::string(100, '\7'));
}

TEST_CASE("an inline put writes nothing when its region was closed meanwhile") {
    InlineBulkPair pair;
    Region region = pair.expose(100);
    CallOutcome outcome;
    pair.start(push, region.ref(), true, outcome);
    region.close();
    const Status status = pair.finish(outcome).status;  // The put precedes the reply.
    INFO(status.to_string());
    CHECK(status.code() == Code::permission_denied);
    CHECK(status.effect() == Effect::applied);
    CHECK(status.text().find("for offset 0 of region") != status.text().npos);
    CHECK(InlineBulkPair::is_pattern(pair.memory.bytes()));
}

TEST_CASE("a call fails when the memory of its inline put is not writable") {
    InlineBulkPair pair;
    constexpr std::size_t page = 4096;
    void* const at =
        ::mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    REQUIRE(at != MAP_FAILED);
    const Bytes mapped(static_cast<std::byte*>(at), page);
    {
        const Region region =
            pair.client.expose(Buffer::adopt(mapped, [] {}), {.access = Access::read_write})
                .value();
        const RegionRef ref = region.ref(100, 200);
        const MethodId& method = GENERATE(push, both);
        const int access = GENERATE(PROT_READ, PROT_NONE);
        CallOutcome outcome, next, other;
        pair.start(method, ref, true, outcome);
        pair.channel.call(MethodId("weft.Node/Ping"), as_bytes("x"), {}, other.done());
        REQUIRE(::mprotect(at, page, access) == 0);
        const Status status = pair.finish(outcome).status;
        INFO(status.to_string());
        CHECK(status.code() == Code::failed_precondition);
        CHECK(status.effect() == Effect::applied);
        CHECK(status.stage() == Stage::executing);
        CHECK(status.peer() == "sim://server");
        CHECK(status.text().find("offset 100 of region " + std::to_string(ref.region)) !=
              status.text().npos);
        CHECK(status.text().find("exposed and writable until") != status.text().npos);
        REQUIRE(::mprotect(at, page, PROT_READ | PROT_WRITE) == 0);
        CHECK(as_text(mapped).find('p') == std::string::npos);
        // The connection, its other calls and the slot are unaffected.
        REQUIRE(pair.rig.run_until([&] { return other.completions == 1; }));
        CHECK(other.status.ok());
        pair.start(method, ref, true, next);
        CHECK(pair.finish(next).status.ok());
        CHECK(outcome.completions == 1);
        CHECK(node_of(pair.client).client.in_flight() == 0);
        CHECK(node_of(pair.client).client.in_use() == 0);
    }
    pair.rig.run_for(1ms);
    ::munmap(at, page);
}

TEST_CASE("a failed inline put completes its call with the reply, not before") {
    InlineBulkPair pair;
    Region region = pair.expose(100);
    const RegionRef ref = region.ref();
    CallOutcome outcome;
    pair.start(later, ref, true, outcome);
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    Call call = std::move(pair.service.held[0]);
    pair.service.held.clear();
    const Buffer from = pair.server.allocate(100).value();
    Status put = fail(Code::unknown, "never");
    region.close();
    call.put(ref, 0, from, [&](const Status& status) { put = status; });
    pair.rig.run_for(1ms);
    CHECK(put.ok());
    CHECK(outcome.completions == 0);  // The handler still runs.
    SECTION("the effect is applied also when the handler fails") {
        call.fail(fail(Code::resource_exhausted, "full"));
        CHECK(pair.finish(outcome).status.code() == Code::permission_denied);
        CHECK(outcome.status.effect() == Effect::applied);
    }
    SECTION("the effect is unknown when the call ends before its reply") {
        pair.channel = Channel();
        CHECK(pair.finish(outcome).status.effect() == Effect::unknown);
        call.reply({});
    }
    pair.rig.run_for(1ms);
    CHECK(outcome.completions == 1);
}

TEST_CASE("the inline reference of a call awaited through another context is copied") {
    InlineBulkPair pair;
    Runtime& other = pair.rig.add("");
    const Region region = pair.expose(4096);
    std::array<std::byte, RegionRef::wire_bytes> body;
    region.ref().encode(body);
    auto ref = std::make_unique<RegionRef>(region.ref());
    Result<std::vector<std::byte>> reply = fail(Code::unknown, "never");
    const auto ask = [&]() -> Task<> {
        reply = co_await weft::call(pair.channel, pull, body, {.inline_bulk = ref.get()});
    };
    other.spawn(ask());
    const TimePoint start = pair.rig.clock->now();
    other.turn();
    *ref = {};
    ref.reset();
    REQUIRE(pair.rig.run_until([&] { return reply.status().code() != Code::unknown; }));
    REQUIRE(reply.ok());
    CHECK(InlineBulkPair::is_pattern(*reply));
    CHECK(pair.rig.clock->now() - start == one_trip);
}
