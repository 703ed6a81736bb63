// Cancellation slots: before the request leaves, in flight, after the end, from any thread.
#include <thread>

#include "support/asio_pair.h"
#include "support/sm_node.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;
using echo::v1::EchoClient;
using echo::v1::EchoReply;

namespace {

struct Outcome {
    int completions = 0;
    Status status;
    auto handler(asio::cancellation_signal& signal) {
        return asio::bind_cancellation_slot(signal.slot(), [this](Result<EchoReply> reply) {
            ++completions;
            status = reply.status();
        });
    }
    auto transfer_handler(asio::cancellation_signal& signal) {
        return asio::bind_cancellation_slot(signal.slot(), [this](const Status& with) {
            ++completions;
            status = with;
        });
    }
};

// Runs `work` on this thread, which turns the runtimes, or on another one.
void on_thread(bool another, const std::function<void()>& work) {
    if (another) {
        std::thread(work).join();
    } else {
        work();
    }
}

// Waits for the completion and checks that there is one only.
void check_cancelled(AsioPair& pair, const Outcome& outcome) {
    CHECK(outcome.completions == 0);
    REQUIRE(pair.run_until([&] { return outcome.completions > 0; }));
    pair.run_until_idle();
    CHECK(outcome.completions == 1);
    CHECK(outcome.status.code() == Code::cancelled);
}

constexpr asio::cancellation_type any_type[] = {asio::cancellation_type::terminal,
                                                asio::cancellation_type::partial,
                                                asio::cancellation_type::total};

}  // namespace

TEST_CASE("asio: a signal of any type from any thread cancels a call in flight") {
    const bool start_elsewhere = GENERATE(false, true), emit_elsewhere = GENERATE(false, true);
    const asio::cancellation_type type =
        GENERATE(from_range(std::begin(any_type), std::end(any_type)));
    AsioPair pair;
    asio::cancellation_signal signal;
    Outcome outcome;
    on_thread(start_elsewhere,
              [&] { pair.stub().Held(request_of("x"), {}, outcome.handler(signal)); });
    REQUIRE(pair.run_until([&] { return pair.service.waiting == 1; }));
    signal.emit(asio::cancellation_type::none);
    pair.run_until_idle();
    REQUIRE(outcome.completions == 0);
    on_thread(emit_elsewhere, [&] { signal.emit(type); });
    check_cancelled(pair, outcome);
    CHECK(pair.service.was_cancelled);  // At the handler.
    CHECK(node_of(pair.client).client.in_flight() == 0);
}

TEST_CASE("asio: a signal before the request is sent cancels the call with effect none") {
    const bool start_elsewhere = GENERATE(false, true), emit_elsewhere = GENERATE(false, true);
    AsioPair pair;
    asio::cancellation_signal signal;
    Outcome outcome;
    on_thread(start_elsewhere,
              [&] { pair.stub().Now(request_of("x"), {}, outcome.handler(signal)); });
    on_thread(emit_elsewhere, [&] { signal.emit(asio::cancellation_type::terminal); });
    check_cancelled(pair, outcome);
    CHECK(outcome.status.effect() == Effect::none);
    CHECK(pair.service.handled == 0);
}

TEST_CASE("asio: a signal after the completion does nothing") {
    const bool start_elsewhere = GENERATE(false, true);
    AsioPair pair;
    asio::cancellation_signal signal;
    Outcome outcome, next;
    on_thread(start_elsewhere,
              [&] { pair.stub().Now(request_of("x"), {}, outcome.handler(signal)); });
    REQUIRE(pair.run_until([&] { return outcome.completions == 1; }));
    CHECK(outcome.status.ok());
    // It does not cancel another call that reuses the record either.
    pair.stub().Now(request_of("x"), {},
                    [&](Result<EchoReply> reply) { next.completions += reply.ok(); });
    signal.emit(asio::cancellation_type::terminal);
    pair.run_until_idle();
    CHECK(outcome.completions == 1);
    CHECK(next.completions == 1);
}

TEST_CASE("asio: a signal while the result waits for its executor changes nothing") {
    const bool start_elsewhere = GENERATE(false, true);
    AsioPair pair;
    asio::cancellation_signal signal;
    int completions = 0;
    on_thread(start_elsewhere, [&] {
        pair.stub().Now(
            request_of("x"), {},
            asio::bind_executor(
                pair.io, asio::bind_cancellation_slot(signal.slot(), [&](Result<EchoReply> reply) {
                    completions += reply.ok();
                    CHECK_FALSE(signal.slot().has_handler());
                })));
    });
    pair.rig.run_for(1s);
    CHECK(completions == 0);
    signal.emit(asio::cancellation_type::terminal);
    pair.run_until_idle();
    CHECK(completions == 1);
}

TEST_CASE("asio: a signal cancels a transfer, also one that waits for its connection") {
    const bool start_elsewhere = GENERATE(false, true), emit_elsewhere = GENERATE(false, true);
    AsioPair pair;
    const Buffer theirs = pair.server.allocate(64).value();
    const Region region = pair.server.expose(theirs, {.access = Access::read_write}).value();
    const Buffer ours = pair.client.allocate(16).value();
    asio::cancellation_signal signals[2];
    Outcome outcomes[2];
    on_thread(start_elsewhere, [&] {
        async_get(pair.channel, region.ref(), 0, ours, {},
                  outcomes[0].transfer_handler(signals[0]));
        async_put(pair.channel, region.ref(), 0, ours, {},
                  outcomes[1].transfer_handler(signals[1]));
    });
    on_thread(emit_elsewhere, [&] {
        for (auto& signal : signals) signal.emit(asio::cancellation_type::terminal);
    });
    check_cancelled(pair, outcomes[0]);
    CHECK(outcomes[1].completions == 1);
    CHECK(outcomes[1].status.code() == Code::cancelled);
    CHECK(node_of(pair.client).bulk.transfers.in_flight() == 0);
}

TEST_CASE("asio: awaitable_operators cancel the other call when one call completes") {
    using namespace asio::experimental::awaitable_operators;
    AsioPair pair;
    bool done = false;
    asio::co_spawn(
        pair.io,
        [&]() -> asio::awaitable<void> {
            auto first = co_await (pair.stub().Held(request_of("x"), {}, asio::use_awaitable) ||
                                   pair.stub().Later(request_of("y"), {}, asio::use_awaitable));
            REQUIRE(first.index() == 1);
            CHECK(std::get<1>(first)->text() == "y");
            done = true;
        },
        asio::detached);
    REQUIRE(pair.run_until([&] { return done; }));
    CHECK(pair.run_until([&] { return pair.service.was_cancelled; }));
}

TEST_CASE("asio: a call completes once when a signal races with its reply") {
    EchoServer service;
    Runtime runtime = Runtime::create().value();
    const std::string uri = "sm://" + unique_name("asio");
    REQUIRE(runtime.serve(service, uri).ok());
    const EchoClient stub(runtime.connect(uri).value());
    asio::io_context io(1);
    constexpr int calls = 300;
    int completions = 0, answered = 0, cancelled = 0;
    std::vector<asio::cancellation_signal> signals(calls);
    asio::post(io, [&] {
        for (auto& signal : signals) {
            const auto count = [&](Result<EchoReply> reply) {
                ++completions;
                answered += reply.ok();
                cancelled += reply.status().code() == Code::cancelled;
            };
            stub.Now(request_of("x"), {},
                     asio::bind_executor(io, asio::bind_cancellation_slot(signal.slot(), count)));
            asio::post(io, [&] { signal.emit(asio::cancellation_type::terminal); });
        }
    });
    io.run();
    CHECK(completions == calls);
    CHECK(answered + cancelled == calls);
}
