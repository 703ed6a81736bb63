// A handler's own transfers, and the calls that their completions make, are part of its call.
#include <memory>
#include <optional>

#include <weft/await.h>

#include "support/lost_pair.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId fetch_and_ask("test.Nest/FetchAndAsk");

// Transfers the region that the request names by Call::get or put, then calls another server.
struct FetchAndAsk final : Service {
    FetchAndAsk(Runtime& of, Channel to) : runtime(of), other(std::move(to)) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(fetch_and_ask, [this](Call call) {
            const RegionRef remote = RegionRef::decode(call.request()).value();
            const Buffer local = runtime.allocate(remote.length).value();
            auto shared = std::make_shared<Call>(std::move(call));
            deadline = shared->deadline();
            const auto then = [this, shared, local](const Status& status) {
                moved = status;
                other.call(echo_method, {}, {.timeout = 30s},
                           [this, shared](const Status&, ByteView) { ++ended; });
            };
            put ? shared->put(remote, 0, local, then) : shared->get(remote, 0, local, then);
        });
    }
    Runtime& runtime;
    Channel other;
    bool put = false;
    TimePoint deadline{};
    Status moved = Status(Code::unknown, "never");
    int ended = 0;
};

struct Fetching : Lost {
    Echo last;
    Runtime& third = rig.add("third");
    FetchAndAsk fetcher{server, server.connect("sim://third").value()};
    Buffer memory = named.allocate(64).value();
    Region region = named.expose(memory, {.access = Access::read_write}).value();
    RegionRef ref = region.ref();
    CallOutcome outcome;

    Fetching() {
        last.hold = true;
        REQUIRE(third.add(last).ok());
        REQUIRE(server.add(fetcher).ok());
        warm_up();
    }
    ~Fetching() {
        last.held.clear();
        rig.run_for(1s);
        rig.runtimes.clear();  // Before the services.
    }
    OperationId start(Duration timeout, bool inline_bulk) {
        std::array<std::byte, RegionRef::wire_bytes> body;
        ref.encode(body);
        return channel.call(fetch_and_ask, body,
                            {.timeout = timeout, .inline_bulk = inline_bulk ? &ref : nullptr},
                            outcome.done());
    }
};

}  // namespace

TEST_CASE("nested: calls made by the completion of a call's transfer are part of the call") {
    const bool put = GENERATE(false, true);
    const bool inline_bulk = GENERATE(false, true);
    INFO((put ? "put" : "get") << (inline_bulk ? ", inline" : ""));
    Fetching rig;
    rig.fetcher.put = put;
    const OperationId id = rig.start(1s, inline_bulk);
    REQUIRE(rig.rig.run_until([&] { return rig.last.held.size() == 1; }));
    CHECK(rig.fetcher.moved.ok());
    CHECK(rig.last.held[0].deadline() <= rig.fetcher.deadline + 1ms);
    rig.channel.cancel_call(id);
    rig.rig.run_for(100ms);
    CHECK(rig.last.held[0].cancelled());
    CHECK(rig.fetcher.ended == 1);
}

TEST_CASE("nested: a call's own transfer ends with it, and so do the calls of its completion") {
    Fetching rig;
    const OperationId id = rig.start(20s, false);
    // The handler runs, and its get is never answered.
    REQUIRE(rig.rig.run_until([&] { return rig.fetcher.deadline != TimePoint{}; }));
    REQUIRE(rig.fetcher.moved.code() == Code::unknown);
    (void)rig.rig.world->ignore_rma("client");
    rig.channel.cancel_call(id);
    rig.rig.run_for(5s);
    CHECK(rig.fetcher.moved.code() == Code::cancelled);
    // The call that its completion made ended with it and was never sent.
    CHECK(rig.fetcher.ended == 1);
    CHECK(rig.last.held.empty());
}

TEST_CASE("nested: calls made by the completion of an expired transfer are part of the call") {
    struct Late final : Service {
        Late(Channel to, Channel on) : back(std::move(to)), other(std::move(on)) {}
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Nest/Late"), [this](Call call) {
                deadline = call.deadline();
                held = std::move(call);
                back.get({}, 0, {}, {.timeout = -1ns}, [this](const Status& status) {
                    moved = status;
                    other.call(echo_method, {}, {.timeout = 30s}, [](const Status&, ByteView) {});
                });
            });
        }
        Channel back, other;
        Call held;
        TimePoint deadline{};
        Status moved;
    };
    std::optional<Late> late;
    Fetching rig;
    const Channel third = rig.server.connect("sim://third").value();
    REQUIRE(rig.server.add(late.emplace(third, third)).ok());
    rig.channel.call(MethodId("test.Nest/Late"), {}, {.timeout = 1s}, rig.outcome.done());
    REQUIRE(rig.rig.run_until([&] { return rig.last.held.size() == 1; }));
    CHECK(late->moved.code() == Code::deadline_exceeded);
    CHECK(late->moved.effect() == Effect::none);
    CHECK(rig.last.held[0].deadline() <= late->deadline + 1ms);
    late->held.reply({});
    late->back = late->other = Channel();
}

// An awaited transfer of a Call that moves, or is dropped, before the operation is destroyed.
TEST_CASE("nested: an awaited transfer may be destroyed after its Call has moved or ended") {
    const bool drops = GENERATE(false, true);
    struct Moves final : Service {
        Moves(Runtime& of, bool loses) : runtime(of), drops(loses) {}
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(MethodId("test.Nest/Moves"), [this](Call call) {
                const RegionRef remote = RegionRef::decode(call.request()).value();
                auto first = std::make_unique<Call>(std::move(call));
                std::unique_ptr<TransferOperation> operation(new TransferOperation(
                    get(*first, remote, 0, runtime.allocate(remote.length).value())));
                if (drops) *first = Call();
                Call last = std::move(*first);
                first.reset();
                operation.reset();
                last.reply(as_bytes("moved"));
            });
        }
        Runtime& runtime;
        bool drops;
    };
    std::optional<Moves> moves;
    Fetching rig;
    REQUIRE(rig.server.add(moves.emplace(rig.server, drops)).ok());
    std::array<std::byte, RegionRef::wire_bytes> body;
    rig.ref.encode(body);
    rig.channel.call(MethodId("test.Nest/Moves"), body, {.timeout = 1s}, rig.outcome.done());
    REQUIRE(rig.rig.run_until([&] { return rig.outcome.completions == 1; }));
    CHECK(rig.outcome.status.code() == (drops ? Code::internal : Code::ok));
    rig.rig.run_for(1s);
}
