// The end of concurrent tasks: destroyed at each suspension point, with their runtime, and with
// work on other threads.
#include <atomic>

#include <weft/offload.h>

#include "support/child.h"
#include "support/combined.h"
#include "support/owned_coroutine.h"

namespace combine_test {

// ---- destroyed at each suspension point ---------------------------------------------------------

Task<Result<std::string>> text_of(EchoClient stub, std::string text, Duration pause) {
    if (Status slept = co_await sleep_for(pause); !slept.ok()) co_return slept;
    Result<EchoReply> reply = co_await stub.Now(request_of(text));
    if (!reply) co_return reply.status();
    co_return std::string(reply->text());
}

std::string said(const Result<std::string>& result) {
    return result ? *result : std::string(name_of(result.status().code()));
}

Task<void> everything(EchoClient stub, Bench& bench) {
    const Alive local(bench.alive);
    auto all = co_await when_all(with_timeout(50ms, text_of(stub, "in time", 1ms)),
                                 with_timeout(5ms, text_of(stub, "too late", 1h)),
                                 when_any(text_of(stub, "won", 2ms), text_of(stub, "lost", 30ms)),
                                 with_timeout(20ms, held(stub)));
    std::vector<Task<Result<std::string>>> more;
    for (int i = 0; i < 4; ++i) more.push_back(text_of(stub, "more", i * 1ms));
    auto any = co_await when_any(std::move(more));
    bench.ended.push_back(said(all.get<0>()) + ", " + said(all.get<1>()) + ", " +
                          said(all.get<2>().value()) + ", " +
                          std::string(name_of(all.get<3>().code())) + ", " + said(any.value()));
}

OwnedCoroutine own(Task<void> task) { co_await task; }

TEST_CASE("combined tasks can be destroyed at each suspension point") {
    const bool in_a_turn = GENERATE(true, false);  // false: after its runtime.
    int turns = 0;
    for (bool is_over = false; !is_over; ++turns) {
        CAPTURE(turns);
        EchoPair pair;
        Bench bench;
        OwnedCoroutine coroutine;
        pair.client.executor().post([&] { coroutine = own(everything(pair.stub(), bench)); });
        int left = turns;
        pair.rig.run_until([&] { return left-- == 0; });
        is_over = !bench.ended.empty();
        if (is_over) {
            CHECK(bench.ended.front() ==
                  "in time, DEADLINE_EXCEEDED, won, DEADLINE_EXCEEDED, more");
        }
        if (in_a_turn) {
            pair.client.executor().post([&] { coroutine.destroy(); });
            pair.rig.run_for(2s);
            CHECK(node_of(pair.client).client.in_flight() == 0);
            CHECK(node_of(pair.client).context.timers().armed() == 0);
        } else {
            pair.rig.runtimes.pop_back();
            coroutine.destroy();
        }
        CHECK(bench.alive == 0);
    }
    CHECK(turns > 30);
}

TEST_CASE("combined tasks end with their runtime at each suspension point") {
    int turns = 0;
    for (bool is_over = false; !is_over; ++turns) {
        CAPTURE(turns);
        EchoPair pair;
        Bench bench;
        pair.client.spawn(everything(pair.stub(), bench));
        int left = turns;
        pair.rig.run_until([&] { return left-- == 0; });
        is_over = !bench.ended.empty();
        pair.rig.runtimes.pop_back();
        CHECK(bench.alive == 0);
    }
    CHECK(turns > 30);
}

// ---- offloaded work -----------------------------------------------------------------------------

// Waits on another thread, using variables of its frame.
Task<int> blocks(std::atomic<bool>& go, std::atomic<bool>& has_ended, Bench& bench) {
    const Alive local(bench.alive);
    std::string mine("a text that does not fit into a small string object");
    const auto work = [&] {
        go.wait(false);
        mine += ", written by another thread";
        has_ended = true;
    };
    co_await offload(work);
    bench.ended.push_back("resumed");
    co_return 1;
}

Task<int> opens_after(Duration time, std::atomic<bool>& go) {
    (void)co_await sleep_for(time);
    go = true;
    go.notify_all();
    co_return 2;
}

TEST_CASE("a timed-out task with offloaded work is dropped when the work has ended") {
    Runtime runtime = Runtime::create({.log_level = LogLevel::off}).value();
    Bench bench;
    std::atomic<bool> go = false, has_ended = false;
    struct {
        Task<bool> operator()(std::atomic<bool>& flag, std::atomic<bool>& ended, Bench& at) {
            auto both = co_await when_all(
                with_timeout(1ms, when_any(blocks(flag, ended, at), blocks(flag, ended, at))),
                opens_after(20ms, flag));
            co_return ended&& both.get<0>().status().code() ==
                Code::deadline_exceeded&& both.get<1>() == 2;
        }
    } race;
    CHECK(runtime.block_on(race(go, has_ended, bench)));
    CHECK(bench.alive == 0);
    CHECK(bench.ended.empty());
}

TEST_CASE("offloaded work of a task runs beside other tasks") {
    Runtime runtime = Runtime::create({.log_level = LogLevel::off}).value();
    Bench bench;
    std::atomic<bool> go = false, has_ended = false;
    struct {
        Task<bool> operator()(std::atomic<bool>& flag, std::atomic<bool>& ended, Bench& at) {
            auto both = co_await when_all(with_timeout(no_timeout, blocks(flag, ended, at)),
                                          opens_after(1ms, flag));
            co_return both.get<0>().value() == 1;
        }
    } beside;
    CHECK(runtime.block_on(beside(go, has_ended, bench)));
    CHECK(bench.ended == std::vector<std::string>{"resumed"});
}

// ---- g++ 12 -------------------------------------------------------------------------------------

static_assert(!std::is_aggregate_v<AllOf<std::string>> &&
              !std::is_aggregate_v<FirstOf<std::string>>);
static_assert(!std::is_move_constructible_v<Sleep> && !std::is_aggregate_v<Sleep>);

const std::string long_text(100, 'l');

Task<Result<std::string>> call_of(EchoClient stub, std::string text, CallOptions options = {}) {
    Result<EchoReply> reply = co_await stub.Later(request_of(text), options);
    if (!reply) co_return reply.status();
    co_return std::string(reply->text());
}

Task<Status> every_combined_shape(Channel channel, int& right) {
    const EchoClient stub(channel);
    const auto count = [&right](const Result<std::string>& text) {
        right += text && *text == long_text;
    };
    count((co_await when_all(call_of(stub, long_text), call_of(stub, long_text))).get<1>());
    count((co_await when_any(call_of(stub, long_text), call_of(stub, std::string(long_text))))
              .value());
    count(co_await with_timeout(1s, call_of(EchoClient(channel), long_text, {.timeout = 1s})));
    count(co_await with_timeout(
        1s, call_of(stub, (co_await when_any(call_of(stub, long_text))).value().value())));
    count((co_await with_timeout(1s,
                                 when_any(call_of(stub, long_text),
                                          with_timeout(1s, call_of(stub, std::string(long_text))))))
              ->value());
    std::vector<Task<Result<std::string>>> tasks;
    tasks.push_back(call_of(stub, long_text));
    count((co_await when_all(std::move(tasks))).front());
    auto late = when_all(call_of(stub, long_text), call_of(stub, long_text));
    const auto both = co_await late;
    count(both.get<0>());
    co_return Status();
}

TEST_CASE("every argument form of combined tasks that compiles in co_await is safe") {
    EchoPair pair;
    int right = 0;
    CHECK(pair.run(every_combined_shape(pair.channel, right)).ok());
    CHECK(right == 7);
}

TEST_CASE("destroying a coroutine while its offloaded work runs ends the program") {
    const bool has_ended = GENERATE(false, true);
    const int code = end_of_child([&] {
        SimRig rig;
        Runtime& runtime = rig.add("");
        OwnedCoroutine coroutine;
        struct {
            Task<void> operator()() {
                const auto nothing = [] {};
                co_await offload(nothing);
            }
        } offloads;
        // The work and its continuation run later in the same turn.
        runtime.executor().post([&] {
            coroutine = own(offloads());
            if (!has_ended) coroutine.destroy();
        });
        runtime.turn();
        coroutine.destroy();
        return 7;
    });
    CHECK(code == (has_ended ? 7 : -SIGABRT));
}

}  // namespace combine_test
