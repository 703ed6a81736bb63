// Cancellation slots of a runtime with several contexts.
#include <future>
#include <thread>

#include "support/asio_pair.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

static void run_in_turn(Runtime& runtime, unsigned context, const std::function<void()>& work) {
    std::promise<void> done;
    runtime.context(context).executor().post([&] {
        work();
        done.set_value();
    });
    done.get_future().wait();
}

// The call is posted to context 0, the channel's, which begins it after the signal.
TEST_CASE("asio: a signal from any context cancels a call that another context begins") {
    static constexpr unsigned no_context = 2;
    const unsigned from = GENERATE(1u, no_context);
    CAPTURE(from);
    NumberedServer server(1, fresh_uri("unix"));
    Runtime client = Runtime::create(with_contexts(2)).value();
    const Channel channel = client.connect(server.address()).value();
    std::promise<void> is_held, may_continue;
    client.context(0).executor().post([&] {
        is_held.set_value();
        may_continue.get_future().wait();
    });
    is_held.get_future().wait();
    asio::io_context io(1);
    asio::cancellation_signal signal;
    Status ended;
    async_call(channel, hold_method, {}, {.timeout = test_timeout},
               asio::bind_cancellation_slot(
                   signal.slot(),
                   asio::bind_executor(io, [&](const Result<std::vector<std::byte>>& reply) {
                       ended = reply.status();
                   })));
    const auto emit = [&] { signal.emit(asio::cancellation_type::terminal); };
    from == no_context ? emit() : run_in_turn(client, from, emit);
    run_in_turn(client, 1, [] {});  // What was posted there has run.
    may_continue.set_value();
    io.run();
    CHECK(ended.code() == Code::cancelled);
}
