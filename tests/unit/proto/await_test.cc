#include <cstdio>
#include <thread>

#include "support/echo.h"
#include "support/owned_coroutine.h"

using namespace weft;
using echo::v1::EchoClient;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;
using test::EchoPair;
using test::OwnedCoroutine;
using test::request_of;

namespace {

const std::string long_text(100, 'l');

template <class T>
concept Awaitable = requires(T& it) {
    it.await_ready();
}
|| requires(T& it) { operator co_await(it); };

// ---- g++ 12: operations it would destroy twice do not compile, and those that do are safe -------

static_assert(Awaitable<ProtoCall<EchoReply>> && Awaitable<TransferOperation>);
static_assert(!std::is_move_constructible_v<ProtoCall<EchoReply>>);
static_assert(!std::is_aggregate_v<ProtoCall<EchoReply>> && !std::is_aggregate_v<CallOperation> &&
              !std::is_aggregate_v<TransferOperation> && !std::is_aggregate_v<Buffer>);
static_assert(std::is_trivially_copyable_v<CallOptions> &&
              std::is_trivially_copyable_v<RegionRef> && std::is_trivially_copyable_v<MethodId> &&
              std::is_trivially_copyable_v<ByteView>);
// The callback form takes a lambda, so its result must not be awaitable.
static_assert(!Awaitable<OperationId>);
template <class Work>
concept Offloadable = requires(Work&& work) {
    offload(std::forward<Work>(work));
};
struct HoldsText {
    std::string text;
    void operator()() const {}
};
struct HoldsNumber {
    int number;
    void operator()() const {}
};
static_assert(!Offloadable<HoldsText> && Offloadable<HoldsText&> && Offloadable<HoldsNumber>);

Task<Status> every_safe_shape(Channel channel, int& right) {
    const EchoClient stub(channel);
    const auto count = [&right](const Result<EchoReply>& reply) {
        if (reply && reply->text() == long_text) ++right;
    };
    count(co_await stub.Later(request_of(long_text)));
    count(co_await stub.Later(request_of(long_text), {.timeout = 1s}));
    count(co_await stub.Later(request_of(long_text), CallOptions{.timeout = 1s}));
    count(co_await EchoClient(channel).Later(request_of(std::string(long_text)), {}));
    Result<EchoReply> kept = co_await EchoClient(Channel(channel)).Now(request_of(long_text));
    count(kept);
    const std::string text = (co_await stub.Now(request_of(long_text))).value().text();
    if (text == long_text) ++right;
    if ((co_await stub.Now(request_of(long_text), {.timeout = 1s})).ok()) ++right;
    auto early = stub.Later(request_of(long_text));
    count(co_await early);
    co_return Status();
}

}  // namespace

TEST_CASE("every argument shape that compiles inside co_await is safe") {
    EchoPair pair;
    int right = 0;
    CHECK(pair.run(every_safe_shape(pair.channel, right)).ok());
    CHECK(right == 8);
}

namespace {

Task<int> two_at_once(EchoClient stub) {
    auto first = stub.Later(request_of("1"));
    auto second = stub.Later(request_of("2"));
    const Result<EchoReply> two = co_await second;
    const Result<EchoReply> one = co_await first;  // It has already arrived.
    co_return std::stoi(one->text()) * 10 + std::stoi(two->text());
}

Task<Status> status_of(EchoClient stub, std::string text) {
    Result<EchoReply> reply = co_await stub.Later(request_of(text));
    co_return reply.status();
}

Task<std::string> raw(Channel channel, MethodId method) {
    Result<std::vector<std::byte>> reply = co_await weft::call(channel, method, as_bytes("\n\1x"));
    co_return reply ? std::string(as_text(*reply)) : reply.status().to_string();
}

}  // namespace

TEST_CASE("operations start when they are made, so that several can be pending at once") {
    EchoPair pair;
    CHECK(pair.run(two_at_once(pair.stub())) == 12);
}

TEST_CASE("the failure of an awaited call is a value") {
    EchoPair pair;
    const Status status = pair.run(status_of(pair.stub(), "fail"));
    CHECK(status.code() == Code::not_found);
    CHECK(status.effect() == Effect::applied);
}

TEST_CASE("a call with raw bytes can be awaited") {
    EchoPair pair;
    CHECK(pair.run(raw(pair.channel, MethodId("echo.v1.Echo/Now"))) == "\n\1x");
    constexpr MethodId none("echo.v1.Echo/None");
    const std::string said = pair.run(raw(pair.channel, none));
    CHECK(said.starts_with("UNIMPLEMENTED"));
    char hash[17];
    std::snprintf(hash, sizeof hash, "%016llx", static_cast<unsigned long long>(none.hash));
    CHECK(said.find(hash) != said.npos);
}

// ---- destroyed coroutines
// ------------------------------------------------------------------------

namespace {

OwnedCoroutine await_held(EchoClient stub, bool& resumed) {
    (void)co_await stub.Held(request_of(long_text));
    resumed = true;
}

Task<void> inner(EchoClient stub) { (void)co_await stub.Held(request_of(long_text)); }
OwnedCoroutine await_nested(EchoClient stub, bool& resumed) {
    co_await inner(stub);
    resumed = true;
}

}  // namespace

TEST_CASE("destroying a coroutine abandons its call and cancels the handler") {
    EchoPair pair;
    for (auto start : {await_held, await_nested}) {
        bool resumed = false;
        OwnedCoroutine coroutine = start(pair.stub(), resumed);
        REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == 1; }));
        pair.service.was_cancelled = false;
        coroutine.destroy();
        REQUIRE(pair.rig.run_until([&] { return pair.service.was_cancelled; }));
        pair.rig.run_for(1s);
        CHECK_FALSE(resumed);
        CHECK(node_of(pair.client).client.in_flight() == 0);
    }
}

TEST_CASE("shutdown completes a waiting coroutine's call with CANCELLED") {
    EchoPair pair;
    bool resumed = false;
    OwnedCoroutine coroutine = await_held(pair.stub(), resumed);
    REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == 1; }));
    pair.rig.runtimes.pop_back();
    CHECK(resumed);
    bool again = false;
    OwnedCoroutine late = await_held(pair.stub(), again);
    CHECK(again);
}

// ---- between contexts --------------------------------------------------------------------------

namespace {

Task<void> ask_from_elsewhere(EchoClient stub, std::string& text, Executor*& resumed_on) {
    Result<EchoReply> reply = co_await stub.Later(request_of(long_text));
    resumed_on = Executor::current();
    text = reply ? reply->text() : reply.status().to_string();
}

Task<void> start_owned(EchoClient stub, OwnedCoroutine& into, bool& resumed) {
    into = await_held(stub, resumed);
    co_return;
}

Task<void> destroy_owned(OwnedCoroutine& owned) {
    owned.destroy();
    co_return;
}

}  // namespace

TEST_CASE("a coroutine resumes on its own context, whatever the channel's is") {
    EchoPair pair;
    Runtime& elsewhere = pair.rig.add("");
    std::string text;
    Executor* resumed_on = nullptr;
    elsewhere.spawn(ask_from_elsewhere(pair.stub(), text, resumed_on));
    REQUIRE(pair.rig.run_until([&] { return resumed_on != nullptr; }));
    CHECK(resumed_on == &elsewhere.executor());
    CHECK(text == long_text);
}

TEST_CASE("destroying a coroutine abandons its call on another context, too") {
    EchoPair pair;
    Runtime& elsewhere = pair.rig.add("");
    OwnedCoroutine coroutine;
    bool resumed = false;
    elsewhere.spawn(start_owned(pair.stub(), coroutine, resumed));
    REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == 1; }));
    elsewhere.spawn(destroy_owned(coroutine));
    REQUIRE(pair.rig.run_until([&] { return pair.service.was_cancelled; }));
    pair.rig.run_for(1s);
    CHECK_FALSE(resumed);
}

TEST_CASE("awaiting on a thread that turns no context is refused with an error text") {
    EchoPair pair;
    std::string text;
    std::thread([&] {
        struct {
            OwnedCoroutine operator()(EchoClient stub, std::string& said) {
                said = (co_await stub.Now(request_of("x"))).status().to_string();
            }
        } ask;
        ask(pair.stub(), text);
    }).join();
    CHECK(text.find("FAILED_PRECONDITION") == 0);
    CHECK(text.find("make it in the coroutine that awaits it") != text.npos);
    CHECK(text.find("Runtime::spawn") != text.npos);
}

// ---- bulk --------------------------------------------------------------------------------------

namespace {

Task<Status> there_and_back(Channel channel, RegionRef remote, Buffer local) {
    if (Status put = co_await weft::put(channel, remote, 0, local); !put.ok()) co_return put;
    local.data()[0] = std::byte{0};
    auto left = weft::get(channel, remote, 0, local.slice(0, 8), {.timeout = 1s});
    auto right = weft::get(channel, remote, 8, local.slice(8, 8));
    if (Status status = co_await left; !status.ok()) co_return status;
    co_return co_await right;
}

OwnedCoroutine drop_transfer(Channel channel, RegionRef remote, Buffer local, bool& resumed) {
    (void)co_await weft::get(channel, remote, 0, local);
    resumed = true;
}

}  // namespace

TEST_CASE("bulk transfers can be awaited: a put and a get of one region") {
    EchoPair pair;
    const Buffer theirs = pair.server.allocate(64).value();
    const Region region = pair.server.expose(theirs, {.access = Access::read_write}).value();
    const Buffer ours = pair.client.allocate(16).value();
    ours.data()[0] = std::byte{7};
    REQUIRE(pair.run(there_and_back(pair.channel, region.ref(), ours)).ok());
    CHECK(theirs.data()[0] == std::byte{7});
    CHECK(ours.data()[0] == std::byte{7});
    RegionRef forged = region.ref();
    forged.key ^= 1;
    const Status refused = pair.run(there_and_back(pair.channel, forged, ours));
    CHECK(refused.code() == Code::permission_denied);
}

TEST_CASE("destroying a coroutine abandons its transfer") {
    EchoPair pair;
    const Buffer theirs = pair.server.allocate(64).value();
    const Region region = pair.server.expose(theirs, {.access = Access::read}).value();
    bool resumed = false;
    OwnedCoroutine coroutine =
        drop_transfer(pair.channel, region.ref(), pair.client.allocate(64).value(), resumed);
    coroutine.destroy();
    pair.rig.run_for(1s);
    CHECK_FALSE(resumed);
    CHECK(node_of(pair.client).bulk.transfers.in_flight() == 0);
}

TEST_CASE("a handler reads its client's memory by the reference in the request") {
    EchoPair pair;
    const Buffer memory = pair.client.allocate(5).value();
    std::memcpy(memory.data(), "bytes", 5);
    const Region region = pair.client.expose(memory, {.access = Access::read}).value();
    pair.service.memory = pair.server.allocate(64).value();
    struct {
        Task<std::string> operator()(EchoClient stub, RegionRef ref) {
            EchoRequest request;
            to_proto(ref, request.mutable_source());
            Result<EchoReply> reply = co_await stub.Pull(request);
            co_return reply ? reply->text() : reply.status().to_string();
        }
    } pull;
    CHECK(pair.run(pull(pair.stub(), region.ref())) == "bytes");
    RegionRef forged = region.ref();
    forged.generation += 1;
    CHECK(pair.run(pull(pair.stub(), forged)).starts_with("PERMISSION_DENIED"));
}
