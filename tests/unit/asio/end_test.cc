// Handlers of operations that outlive their io_context or their runtime.
#include <thread>

#include "support/asio_pair.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using echo::v1::EchoClient;
using echo::v1::EchoReply;

namespace {

// Expires with the handler that holds it.
std::shared_ptr<int> witness() { return std::make_shared<int>(); }

std::shared_ptr<int> watch(std::vector<std::weak_ptr<int>>& witnesses) {
    const auto held = witness();
    witnesses.push_back(held);
    return held;
}

asio::awaitable<void> wait_for_ever(EchoClient stub, std::shared_ptr<int> held, bool& resumed) {
    (void)co_await stub.Held(request_of("x"), {}, asio::use_awaitable);
    resumed = true;
    (void)held;
}

}  // namespace

TEST_CASE("asio: an io_context that ends destroys its handlers uncalled") {
    AsioPair pair;
    auto io = std::make_unique<asio::io_context>(1);
    int called = 0;
    bool resumed = false;
    std::weak_ptr<int> gone[3];
    {
        const auto held = witness(), awaiting = witness(), done = witness();
        gone[0] = held, gone[1] = awaiting, gone[2] = done;
        pair.stub().Held(request_of("x"), {},
                         asio::bind_executor(*io, [&, held](auto) { ++called; }));
        asio::co_spawn(
            *io, [&, awaiting] { return wait_for_ever(pair.stub(), awaiting, resumed); },
            asio::detached);
        io->poll();
        pair.stub().Now(request_of("x"), {},
                        asio::bind_executor(asio::make_strand(*io), [&, done](auto) { ++called; }));
    }
    REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == 2; }));
    pair.rig.run_for(1s);  // One handler has its result and is queued.
    CHECK_FALSE(gone[0].expired());
    CHECK_FALSE(gone[1].expired());
    CHECK_FALSE(gone[2].expired());
    io.reset();
    CHECK(gone[0].expired());
    CHECK(gone[1].expired());
    CHECK(gone[2].expired());
    // The calls complete later, without a handler.
    pair.run_until_idle();
    pair.rig.runtimes.clear();
    CHECK(called == 0);
    CHECK_FALSE(resumed);
}

TEST_CASE("asio: an io_context that ends destroys handlers on type-erased executors") {
    AsioPair pair;
    auto io = std::make_unique<asio::io_context>(1);
    int called = 0;
    std::vector<std::weak_ptr<int>> gone;
    const auto handler = [&] {
        return [&called, held = watch(gone)](const Result<EchoReply>&) { ++called; };
    };
    const auto start = [&](const auto& executor) {
        pair.stub().Held(request_of("x"), {}, asio::bind_executor(executor, handler()));
        pair.stub().Now(request_of("x"), {}, asio::bind_executor(executor, handler()));
    };
    const auto own = io->get_executor();
    start(asio::any_io_executor(own));
    start(asio::make_strand(asio::any_io_executor(own)));
    start(asio::any_io_executor(asio::make_strand(own)));
    int kinds = 3;
#if !defined(BOOST_ASIO_NO_TS_EXECUTORS)
    start(asio::executor(own));
    ++kinds;
#endif
#if WEFT_TEST_ANY_COMPLETION
    start(asio::any_completion_executor(own));
    start(asio::any_completion_executor(asio::any_io_executor(own)));
    start(asio::any_completion_executor(asio::make_strand(own)));
    start(asio::any_completion_executor(asio::make_strand(asio::any_io_executor(own))));
    pair.stub().Held(
        request_of("x"), {},
        asio::any_completion_handler<void(Result<EchoReply>)>(asio::bind_executor(own, handler())));
    kinds += 5;
#endif
    REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == kinds; }));
    pair.rig.run_for(1s);  // Half of the handlers have results and are queued.
    CHECK(std::ranges::none_of(gone, &std::weak_ptr<int>::expired));
    io.reset();
    CHECK(std::ranges::all_of(gone, &std::weak_ptr<int>::expired));
    pair.run_until_idle();
    pair.rig.runtimes.clear();
    CHECK(called == 0);
}

TEST_CASE("asio: an io_context that ends destroys handlers that own the last runtime in it") {
    AsioPair pair;
    EchoServer service;
    auto io = std::make_unique<asio::io_context>(1);
    auto guest = std::make_shared<Runtime>(Runtime::create({.manual = true}).value());
    const std::string uri = "sm://" + unique_name("asio");
    REQUIRE(guest->serve(service, uri).ok());
    int called = 0;
    const EchoClient stub(guest->connect(uri).value());
    for (int i = 0; i < 2; ++i) {
        stub.Held(request_of("x"), {}, asio::bind_executor(*io, [&, guest](auto) { ++called; }));
    }
    const std::weak_ptr<Runtime> gone = guest;
    guest.reset();
    io.reset();
    CHECK(gone.expired());
    CHECK(called == 0);
}

TEST_CASE("asio: an io_context may end while its calls complete on another thread") {
    EchoServer service;
    Runtime runtime = Runtime::create().value();
    const std::string uri = "sm://" + unique_name("asio");
    REQUIRE(runtime.serve(service, uri).ok());
    const EchoClient stub(runtime.connect(uri).value());
    std::atomic<int> called = 0;
    std::weak_ptr<int> last;
    for (int round = 0; round < 100; ++round) {
        asio::io_context io(1);
        const auto held = witness();
        last = held;
        for (int i = 0; i < 20; ++i) {
            stub.Now(request_of("x"), {},
                     asio::bind_executor(io, [&, held](auto) { called += held.use_count() > 0; }));
        }
        if (round % 2 == 0) io.poll();
    }
    CHECK(last.expired());
    CHECK(called <= 100 * 20);
    // The runtime still works.
    CHECK(stub.Now(request_of("x"), {}, asio::use_future).get().ok());
}

TEST_CASE("asio: calls complete with CANCELLED on the handler's executor when the runtime ends") {
    AsioPair pair;
    Status status;
    int called = 0;
    bool there = false;
    const auto handler = [&](const Result<EchoReply>& reply) {
        ++called;
        status = reply.status();
        there = pair.io.get_executor().running_in_this_thread();
    };
    pair.stub().Held(request_of("x"), {}, asio::bind_executor(pair.io, handler));
    auto future = pair.stub().Held(request_of("x"), {}, asio::use_future);
    REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == 2; }));
    pair.rig.runtimes.clear();
    CHECK(called == 0);
    CHECK(future.get().status().code() == Code::cancelled);
    pair.io.run();
    CHECK(called == 1);
    CHECK(there);
    CHECK(status.code() == Code::cancelled);
}

TEST_CASE("asio: a call on an ended runtime completes once, and not inside its start") {
    const bool with_slot = GENERATE(false, true);
    AsioPair pair;
    const EchoClient stub = pair.stub();
    pair.rig.runtimes.clear();
    asio::cancellation_signal signal;
    int called = 0;
    const auto handler = [&](Result<EchoReply> reply) {
        CHECK_FALSE(reply.ok());
        ++called;
    };
    asio::post(pair.io, [&] {
        if (with_slot) {
            stub.Now(
                request_of("x"), {},
                asio::bind_executor(pair.io, asio::bind_cancellation_slot(signal.slot(), handler)));
        } else {
            stub.Now(request_of("x"), {}, asio::bind_executor(pair.io, handler));
        }
        CHECK(called == 0);
        signal.emit(asio::cancellation_type::terminal);
        CHECK(called == 0);
    });
    pair.io.run();
    CHECK(called == 1);

    // A coroutine must not be resumed before it is suspended.
    Status status;
    asio::co_spawn(
        pair.io,
        [&]() -> asio::awaitable<void> {
            status = (co_await stub.Now(request_of("x"), {}, asio::use_awaitable)).status();
        },
        asio::detached);
    pair.io.restart();
    pair.io.run();
    CHECK_FALSE(status.ok());
}
