// Every completion token of Boost.Asio on every kind of operation, and the executor and the
// allocator of a handler.
#include <future>
#include <mutex>
#include <thread>

#include "support/asio_pair.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using echo::v1::EchoClient;
using echo::v1::EchoReply;
using echo::v1::EchoRequest;

namespace {

const std::string long_text(100, 'l');
constexpr MethodId now_method("echo.v1.Echo/Now");

// Operands of co_await are no aggregates, because g++ 12 destroys aggregates there twice.
template <class Token>
using Returned = decltype(std::declval<const EchoClient&>().Now({}, {}, std::declval<Token>()));
static_assert(!std::is_aggregate_v<Returned<asio::use_awaitable_t<>>>);
static_assert(!std::is_aggregate_v<Returned<asio::deferred_t>>);
static_assert(!std::is_aggregate_v<Returned<asio::as_tuple_t<asio::deferred_t>>>);

template <class T>
T value_of(std::future<T> future) {
    REQUIRE(future.wait_for(0s) == std::future_status::ready);
    return future.get();
}

// Starts `body` in the io_context and turns until it has ended.
template <class Body>
void run(AsioPair& pair, Body body) {
    bool done = false;
    asio::co_spawn(pair.io, std::move(body), [&](std::exception_ptr thrown) {
        CHECK_FALSE(thrown);
        done = true;
    });
    REQUIRE(pair.run_until([&] { return done; }));
}

asio::awaitable<void> every_token(EchoClient stub, int& right) {
    const auto count = [&right](const Result<EchoReply>& reply) {
        right += reply && reply->text() == long_text;
    };
    // Expressions full of temporaries, which g++ 12 must not destroy twice.
    count(co_await stub.Later(request_of(long_text), {}, asio::use_awaitable));
    count(co_await stub.Later(request_of(std::string(long_text)), {.timeout = 1s},
                              asio::use_awaitable));
    count(co_await EchoClient(stub).Now(request_of(long_text), CallOptions{.timeout = 1s},
                                        asio::use_awaitable));
    count(co_await stub.Later(request_of(long_text), {}, asio::deferred));
    count(std::get<0>(
        co_await stub.Later(request_of(long_text), {}, asio::as_tuple(asio::use_awaitable))));
    count(std::get<0>(
        co_await stub.Later(request_of(long_text), {}, asio::as_tuple(asio::deferred))));
    asio::cancellation_signal signal;
    count(co_await stub.Later(request_of(long_text), {},
                              asio::bind_cancellation_slot(signal.slot(), asio::use_awaitable)));
    count(co_await stub.Later(
        request_of(long_text), {},
        asio::bind_executor(co_await asio::this_coro::executor, asio::use_awaitable)));
    if ((co_await stub.Now(request_of(long_text), {}, asio::use_awaitable)).ok()) ++right;
    // A deferred operation has copies of its arguments.
    auto later = stub.Later(request_of(long_text), {}, asio::deferred);
    auto latest = stub.Later(request_of(long_text), {}, asio::use_awaitable);
    count(co_await std::move(later));
    count(co_await std::move(latest));
}

}  // namespace

TEST_CASE("asio: co_await gives one result with every token") {
    AsioPair pair;
    int right = 0;
    run(pair, [&] { return every_token(pair.stub(), right); });
    CHECK(right == 11);
}

TEST_CASE("asio: a callable that takes a Result is a token, one that takes a Status is not") {
    AsioPair pair;
    int handlers = 0, callbacks = 0;
    pair.stub().Now(request_of("x"), {},
                    [&](Result<EchoReply> reply) { handlers += reply->text() == "x"; });
    const OperationId id =
        pair.stub().Now(request_of("x"), {}, [&](const Status& status, const EchoReply& reply) {
            callbacks += status.ok() && reply.text() == "x";
        });
    CHECK(id.generation != 0);
    CHECK(handlers + callbacks == 0);
    REQUIRE(pair.run_until([&] { return handlers == 1 && callbacks == 1; }));
    pair.run_until_idle();
    CHECK(handlers + callbacks == 2);
}

TEST_CASE("asio: a future is ready when its call completes or fails") {
    AsioPair pair;
    std::future<Result<EchoReply>> good = pair.stub().Later(request_of("x"), {}, asio::use_future);
    std::future<Result<EchoReply>> bad =
        pair.stub().Later(request_of("fail"), {}, asio::use_future);
    CHECK(good.wait_for(0s) == std::future_status::timeout);
    pair.run_until_idle();
    CHECK(value_of(std::move(good))->text() == "x");
    CHECK(value_of(std::move(bad)).status().code() == Code::not_found);
}

TEST_CASE("asio: a deferred call keeps the reference of its inline bulk") {
    AsioPair pair;
    pair.service.memory = pair.server.allocate(64).value();
    const Buffer memory = pair.client.allocate(6).value();
    std::memcpy(memory.data(), "ridden", 6);
    const Region region = pair.client.expose(memory, {.access = Access::read}).value();
    EchoRequest request;
    to_proto(region.ref(), request.mutable_source());
    CHECK(value_of([&] {
              auto warm = pair.stub().Now(request_of("x"), {}, asio::use_future);
              pair.run_until_idle();
              return warm;
          }())
              .ok());
    const auto time_of = [&](bool inline_bulk) {
        auto ref = std::make_unique<RegionRef>(region.ref());
        auto later = pair.stub().Pull(request, {.inline_bulk = inline_bulk ? ref.get() : nullptr},
                                      asio::deferred);
        *ref = RegionRef();
        ref.reset();
        std::optional<Result<EchoReply>> reply;
        const TimePoint began = pair.rig.clock->now();
        std::move(later)([&](Result<EchoReply> came) { reply = std::move(came); });
        REQUIRE(pair.run_until([&] { return reply.has_value(); }));
        CHECK(reply->value().text() == "ridden");
        return pair.rig.clock->now() - began;
    };
    CHECK(time_of(true) < time_of(false));
}

TEST_CASE("asio: calls in bytes, transfers and collectives take tokens, too") {
    AsioPair pair;
    const Buffer theirs = pair.server.allocate(64).value();
    const Region region = pair.server.expose(theirs, {.access = Access::read_write}).value();
    const Buffer ours = pair.client.allocate(16).value();
    ours.data()[0] = std::byte{7};
    auto raw = async_call(pair.channel, now_method, as_bytes("\n\1x"), {}, asio::use_future);
    auto none = async_call(pair.channel, MethodId("echo.v1.Echo/None"), {}, {}, asio::use_future);
    auto put = async_put(pair.channel, region.ref(), 3, ours, {}, asio::use_future);
    pair.run_until_idle();
    CHECK(as_text(*value_of(std::move(raw))) == "\n\1x");
    CHECK(value_of(std::move(none)).status().code() == Code::unimplemented);
    CHECK(value_of(std::move(put)).ok());
    CHECK(theirs.data()[3] == std::byte{7});
    auto get = async_get(pair.channel, region.ref(), 3, ours.slice(8, 1), {}, asio::use_future);
    auto far = async_get(pair.channel, region.ref(), 60, ours, {}, asio::use_future);
    pair.run_until_idle();
    CHECK(value_of(std::move(get)).ok());
    CHECK(ours.data()[8] == std::byte{7});
    CHECK(value_of(std::move(far)).code() == Code::permission_denied);

    const GroupView view = GroupView::make("g", 1, {{0, {"sim://server"}}}).value();
    REQUIRE(pair.server.join(view, 0).ok());
    echo::v1::EchoRequestText request;
    request.set_text("all");
    auto all = echo::v1::EchoGroupClient(pair.client.group(view).value())
                   .Everywhere(request, {}, asio::use_future);
    pair.run_until_idle();
    const GroupResult<EchoReply> ranks = value_of(std::move(all));
    CHECK(ranks.status().ok());
    CHECK(ranks.all_ok());
    CHECK(ranks.epoch() == 1);
    CHECK(ranks[0].reply.text() == "all");
}

TEST_CASE("asio: an operation keeps its channel") {
    AsioPair pair;
    Channel own = pair.client.connect("sim://server").value();
    auto reply =
        EchoClient(std::exchange(own, Channel())).Later(request_of("x"), {}, asio::use_future);
    pair.run_until_idle();
    CHECK(value_of(std::move(reply)).ok());
}

TEST_CASE("asio: a call fails with INTERNAL when its reply does not parse") {
    static constexpr ProtoMethod<EchoRequest, echo::v1::EchoRequestText> lies{
        .id = MethodId("raw.Raw/Lies")};
    struct Liar final : Service {
        void register_methods(MethodRegistrar& registrar) override {
            registrar.add(lies.id, [](Call call) { call.reply(as_bytes("\n\x7f")); });
        }
    } liar;
    AsioPair pair;
    REQUIRE(pair.server.add(liar).ok());
    auto reply = weft::call(pair.channel, lies, request_of("x"), {}, asio::use_future);
    pair.run_until_idle();
    CHECK(value_of(std::move(reply)).status().code() == Code::internal);
    pair.rig.runtimes.clear();
}

// ---- executors ---------------------------------------------------------------------------------

TEST_CASE("asio: a handler runs on its executor, which counts it as work until then") {
    AsioPair pair;
    const auto strand = asio::make_strand(pair.io);
    bool on_strand = false, on_io = false, in_turn = false;
    pair.stub().Now(request_of("x"), {}, asio::bind_executor(strand, [&](Result<EchoReply>) {
                        on_strand = strand.running_in_this_thread();
                        in_turn = Executor::current() != nullptr;
                    }));
    pair.stub().Now(request_of("x"), {}, asio::bind_executor(pair.io, [&](Result<EchoReply>) {
                        on_io = pair.io.get_executor().running_in_this_thread();
                    }));
    pair.rig.run_for(1s);  // The replies have arrived; their handlers are queued in the io_context.
    CHECK_FALSE((on_strand || on_io));
    pair.io.run();
    CHECK((on_strand && on_io));
    CHECK_FALSE(in_turn);
}

namespace {

// The executor that Asio since 1.90 gives a handler without one: it supports no posting.
struct AtOnce {
    bool operator==(const AtOnce&) const noexcept = default;
    template <class Work>
    void execute(Work&& work) const {
        std::forward<Work>(work)();
    }
    static constexpr asio::execution::blocking_t query(asio::execution::blocking_t) noexcept {
        return asio::execution::blocking.always;
    }
};
static_assert(asio::execution::is_executor<AtOnce>::value &&
              !asio::can_require_v<AtOnce, asio::execution::blocking_t::never_t>);

}  // namespace

TEST_CASE("asio: an inline executor runs handlers in the turn, or elsewhere on an ended runtime") {
    AsioPair pair;
    const EchoClient stub = pair.stub();
    Executor* inside = nullptr;
    stub.Now(request_of("x"), {}, asio::bind_executor(AtOnce(), [&](Result<EchoReply> reply) {
                 if (reply) inside = Executor::current();
             }));
    CHECK(inside == nullptr);
    pair.rig.run_for(1s);
    CHECK(inside == &pair.client.executor());

    // On an ended runtime a call fails as it starts; its handler does not run inside the start.
    pair.rig.runtimes.clear();
    std::promise<std::pair<std::thread::id, Code>> ran;
    std::mutex starting;
    std::unique_lock lock(starting);
    stub.Now(request_of("x"), {}, asio::bind_executor(AtOnce(), [&](Result<EchoReply> reply) {
                 const std::lock_guard started(starting);
                 ran.set_value({std::this_thread::get_id(), reply.status().code()});
             }));
    lock.unlock();
    const auto [thread, code] = ran.get_future().get();
    lock.lock();  // The handler has released the mutex, so that the mutex may be destroyed.
    CHECK(thread != std::this_thread::get_id());
    CHECK(code == Code::cancelled);
}

TEST_CASE("asio: a handler runs inside the turn when its io_context turns the runtime") {
    AsioPair pair;
    Executor* inside = nullptr;
    asio::post(pair.io, [&] {
        pair.stub().Now(request_of("x"), {}, asio::bind_executor(pair.io, [&](Result<EchoReply>) {
                            inside = Executor::current();
                        }));
        CHECK(inside == nullptr);
        pair.rig.run_for(1s);
        CHECK(inside == &pair.client.executor());
    });
    pair.io.run();
    CHECK(inside != nullptr);
}

TEST_CASE("asio: calls of a runtime with its own thread complete on the io_context's thread") {
    EchoServer service;
    Runtime runtime = Runtime::create().value();
    const std::string uri = "sm://" + unique_name("asio");
    REQUIRE(runtime.serve(service, uri).ok());
    const EchoClient stub(runtime.connect(uri).value());
    asio::io_context io(1);
    int right = 0;
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
            const auto here = std::this_thread::get_id();
            for (int i = 0; i < 100; ++i) {
                const Result<EchoReply> reply =
                    co_await stub.Now(request_of(long_text), {}, asio::use_awaitable);
                right += reply && reply->text() == long_text && here == std::this_thread::get_id();
            }
        },
        asio::detached);
    io.run();  // Returns at the end only, since a call in flight counts as work.
    CHECK(right == 100);
}

TEST_CASE("asio: every kind of executor runs its handlers and counts them as work until then") {
    AsioPair pair;
    asio::thread_pool pool(1);
    const auto io = pair.io.get_executor();
    std::atomic<int> on_io = 0, on_pool = 0, failed = 0;
    const auto there = [&](const Result<EchoReply>& reply) {
        failed += !reply.ok();
        on_io += io.running_in_this_thread();
        on_pool += pool.get_executor().running_in_this_thread();
    };
    int started = 0;
    const auto start = [&](const auto& executor) {
        ++started;
        pair.stub().Now(request_of("x"), {}, asio::bind_executor(executor, there));
    };
    const auto on_each_form_of = [&](const auto& executor) {
        start(executor);
        start(asio::make_strand(executor));
        start(asio::any_io_executor(executor));
        start(asio::make_strand(asio::any_io_executor(executor)));
#if !defined(BOOST_ASIO_NO_TS_EXECUTORS)
        start(asio::executor(executor));
#endif
#if WEFT_TEST_ANY_COMPLETION
        start(asio::any_completion_executor(executor));
        start(asio::any_completion_executor(asio::make_strand(executor)));
        ++started;
        pair.stub().Now(request_of("x"), {},
                        asio::any_completion_handler<void(Result<EchoReply>)>(
                            asio::bind_executor(executor, there)));
#endif
    };
    on_each_form_of(io);
    on_each_form_of(pool.get_executor());
    pair.rig.run_for(1s);
    CHECK(on_io == 0);
    pair.io.run();
    pool.join();
    CHECK(failed == 0);
    CHECK(on_io == started / 2);
    CHECK(on_pool == started / 2);
}

TEST_CASE("asio: a handler's exception leaves io_context::run() and stops no other handler") {
    AsioPair pair;
    bool other = false;
    asio::post(pair.io, [&] {
        pair.stub().Now(request_of("x"), {},
                        asio::bind_executor(pair.io, [&](Result<EchoReply>) { throw 7; }));
        pair.stub().Now(request_of("x"), {},
                        asio::bind_executor(pair.io, [&](Result<EchoReply>) { other = true; }));
        pair.rig.run_for(1s);
    });
    CHECK_THROWS_AS(pair.io.run(), int);
    CHECK(other);
}

// ---- allocators --------------------------------------------------------------------------------

TEST_CASE("asio: a handler's allocator gets the operation's memory back before the handler runs") {
    AsioPair pair;
    Allocations counts;
    bool called = false;
    const auto handler = [&](Result<EchoReply> reply) {
        called = reply.ok();
        CHECK(counts.live == 0);
    };
    pair.stub().Now(request_of("x"), {},
                    asio::bind_allocator(CountingAllocator<char>(counts), handler));
    CHECK(counts.made == 1);
    CHECK(counts.live == 1);
    pair.run_until_idle();
    CHECK(called);
    CHECK(counts.made == 1);

    // A handler on another executor is posted there with the same allocator.
    called = false;
    pair.stub().Now(request_of("x"), {},
                    asio::bind_allocator(CountingAllocator<char>(counts),
                                         asio::bind_executor(pair.io, handler)));
    pair.rig.run_for(1s);
    CHECK(counts.live == 1);
    pair.io.run();
    CHECK(called);
    CHECK(counts.live == 0);
}

TEST_CASE("asio: operations on an empty channel or group complete with FAILED_PRECONDITION") {
    asio::io_context io;
    asio::cancellation_signal signal;
    int refused = 0;
    const auto done = [&](const auto& outcome) {
        refused += outcome.status().code() == Code::failed_precondition;
    };
    const auto bytes_done = [&](const Result<std::vector<std::byte>>& reply) { done(reply); };
    const auto transfer_done = [&](const Status& status) {
        refused += status.code() == Code::failed_precondition;
    };
    async_call(Channel(), now_method, {}, {}, asio::bind_executor(io, bytes_done));
    async_get(Channel(), {}, 0, {}, {}, asio::bind_executor(io, transfer_done));
    EchoClient(Channel()).Now(
        {}, {}, asio::bind_executor(io, [&](const Result<EchoReply>& reply) { done(reply); }));
    EchoClient(Channel()).Now(
        {}, {},
        asio::bind_cancellation_slot(
            signal.slot(),
            asio::bind_executor(io, [&](const Result<EchoReply>& reply) { done(reply); })));
    echo::v1::EchoGroupClient(Group()).Everywhere(
        echo::v1::EchoRequestText(), {},
        asio::bind_cancellation_slot(
            signal.slot(),
            asio::bind_executor(io, [&](const GroupResult<EchoReply>& result) { done(result); })));
    CHECK(refused == 0);
    io.run();
    CHECK(refused == 5);
}
