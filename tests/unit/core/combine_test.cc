// Concurrent tasks, on virtual time.
#include <optional>
#include <thread>

#include "support/combined.h"
#include "support/owned_coroutine.h"
#include "support/raw_echo.h"

namespace combine_test {

// ---- when_all ----------------------------------------------------------------------------------

TEST_CASE("when_all: tasks run concurrently, and their results are in the order of the tasks") {
    Alone alone;
    Bench& bench = alone.bench;
    const auto all = alone.run(when_all(value_after(30ms, 1, bench), nothing_after(10ms, bench),
                                        text_after(20ms, "text", bench)));
    CHECK(all.get<0>() == 1);
    static_assert(std::is_same_v<decltype(all.get<1>()), const std::monostate&>);
    CHECK(all.get<2>() == "text");
    CHECK(bench.ended == std::vector<std::string>{"nothing", "text", "1"});
    CHECK(bench.alive == 0);
    CHECK(alone.took >= 30ms);
    CHECK(alone.took <= 32ms);
}

TEST_CASE("when_all: a vector of tasks gives a vector of results, also without tasks") {
    Alone alone;
    const int count = GENERATE(0, 1, 100);
    std::vector<Task<int>> tasks;
    for (int i = 0; i < count; ++i) {
        tasks.push_back(value_after(i % 3 == 0 ? 0ms : 10ms * (count - i), i, alone.bench));
    }
    const std::vector<int> all = alone.run(when_all(std::move(tasks)));
    REQUIRE(all.size() == static_cast<std::size_t>(count));
    for (int i = 0; i < count; ++i) CHECK(all[i] == i);
    struct {
        Task<int> operator()(Bench& bench) {
            std::vector<Task<void>> nothings;
            nothings.push_back(nothing_after(1ms, bench));
            co_await when_all(std::move(nothings));
            co_return 1;
        }
    } of_nothing;
    CHECK(alone.run(of_nothing(alone.bench)) == 1);
}

TEST_CASE("when_all: the first exception in task order is rethrown after all tasks have ended") {
    Alone alone;
    Bench& bench = alone.bench;
    CHECK(alone.thrown(when_all(value_after(30ms, 1, bench), throws_after(20ms, "second", bench),
                                throws_after(10ms, "third", bench))) == "second");
    CHECK(bench.ended == std::vector<std::string>{"thrown third", "thrown second", "1"});
    CHECK(bench.alive == 0);
}

// ---- when_any ----------------------------------------------------------------------------------

TEST_CASE("when_any: the task that ends first gives the result, the others are destroyed") {
    Alone alone;
    Bench& bench = alone.bench;
    const auto first = alone.run(when_any(value_after(30ms, 7, bench), value_after(10ms, 8, bench),
                                          value_after(20ms, 9, bench)));
    CHECK(first.index() == 1);
    CHECK(first.value() == 8);
    CHECK(bench.alive == 0);
    CHECK(alone.took <= 12ms);
    alone.rig.run_for(1s);
    CHECK(bench.ended == std::vector<std::string>{"8"});
    CHECK(node_of(alone.runtime).context.timers().armed() == 0);
}

TEST_CASE("when_any: tasks after one that ends at once are not started") {
    Alone alone;
    struct {
        Task<int> operator()(int& started) {
            ++started;
            co_return 5;
        }
    } at_once;
    int started = 0;
    const auto first = alone.run(when_any(value_after(1ms, 1, alone.bench), at_once(started),
                                          at_once(started), value_after(0ms, 2, alone.bench)));
    CHECK(first.index() == 1);
    CHECK(first.value() == 5);
    CHECK(started == 1);
    CHECK(alone.bench.alive == 0);
}

TEST_CASE("when_any: an exception of the first task is rethrown, one of a dropped task is not") {
    Alone alone;
    Bench& bench = alone.bench;
    CHECK(alone.thrown(when_any(value_after(30ms, 1, bench), throws_after(10ms, "no", bench))) ==
          "no");
    std::vector<Task<int>> tasks;
    tasks.push_back(throws_after(30ms, "never", bench));
    tasks.push_back(value_after(10ms, 2, bench));
    CHECK(alone.run(when_any(std::move(tasks))).index() == 1);
    CHECK(bench.alive == 0);
}

TEST_CASE("when_any: the calls of dropped tasks are cancelled, also at their servers") {
    EchoPair pair;
    struct {
        Task<Status> operator()(EchoClient stub) {
            auto first = co_await when_any(held(stub), held(stub), sleeps());
            if (first.index() != 2) co_return fail(Code::internal, "a call ended first");
            co_return std::move(first).value();
        }
        Task<Status> sleeps() { co_return co_await sleep_for(20ms); }
    } race;
    CHECK(pair.run(race(pair.stub())).ok());
    REQUIRE(pair.rig.run_until([&] { return pair.service.waiting == 0; }));
    CHECK(pair.service.was_cancelled);
    CHECK(node_of(pair.client).client.in_flight() == 0);
}

Task<int> at_gate(Gate& gate, Bench& bench) {
    const Alive local(bench.alive);
    co_await gate;
    co_return 1;
}

Task<int> opens(Gate& gate, Bench& bench) {
    const Alive local(bench.alive);
    (void)co_await sleep_for(10ms);
    std::string after("what is used after the other has ended, and would be gone");
    gate.release();
    bench.ended.push_back(after);
    (void)co_await sleep_for(10ms);
    co_return 2;
}

TEST_CASE("when_any: a task that ends another one is not destroyed while it runs") {
    Alone alone;
    Gate gate;
    const auto first = alone.run(when_any(at_gate(gate, alone.bench), opens(gate, alone.bench)));
    CHECK(first.index() == 0);
    CHECK(alone.bench.ended.size() == 1);
    CHECK(alone.bench.alive == 0);
}

// ---- with_timeout ------------------------------------------------------------------------------

TEST_CASE("with_timeout: a task that ends in time returns its result") {
    Alone alone;
    Bench& bench = alone.bench;
    CHECK(alone.run(with_timeout(20ms, value_after(10ms, 4, bench))).value() == 4);
    CHECK(alone.run(with_timeout(20ms, nothing_after(0ms, bench))).ok());
    CHECK(alone.thrown(with_timeout(20ms, throws_after(10ms, "no", bench))) == "no");
    // A result type that holds a Status is not wrapped.
    static_assert(std::is_same_v<TimedOf<Status>, Status>);
    static_assert(std::is_same_v<TimedOf<Result<int>>, Result<int>>);
    static_assert(std::is_same_v<TimedOf<bool>, Result<bool>>);
    CHECK(bench.alive == 0);
    CHECK(node_of(alone.runtime).context.timers().armed() == 0);
}

TEST_CASE("with_timeout: a task that takes longer is dropped: DEADLINE_EXCEEDED, effect unknown") {
    Alone alone;
    Bench& bench = alone.bench;
    const Result<int> late = alone.run(with_timeout(20ms, value_after(10s, 4, bench)));
    CHECK(late.status().code() == Code::deadline_exceeded);
    CHECK(late.status().effect() == Effect::unknown);
    CHECK(late.status().text().find("20 ms") != std::string_view::npos);
    CHECK(alone.took >= 20ms);
    CHECK(alone.took <= 22ms);
    CHECK(bench.alive == 0);
    CHECK(alone.run(with_timeout(0ms, nothing_after(10s, bench))).code() ==
          Code::deadline_exceeded);
    CHECK(alone.run(with_timeout(no_timeout, nothing_after(10s, bench))).ok());
    CHECK(bench.ended == std::vector<std::string>{"nothing"});
}

TEST_CASE("with_timeout: time begins at the await, and the shorter of two nested ones counts") {
    Alone alone;
    struct {
        Task<Result<int>> operator()(Bench& bench) {
            auto timed = with_timeout(20ms, with_timeout(10s, value_after(10ms, 4, bench)));
            (void)co_await sleep_for(1s);
            Result<int> in_time = co_await timed;
            if (!in_time) co_return in_time;
            co_return co_await with_timeout(10s, with_timeout(20ms, value_after(1s, 5, bench)));
        }
    } nested;
    const Result<int> result = alone.run(nested(alone.bench));
    CHECK(result.status().code() == Code::deadline_exceeded);
    CHECK(alone.bench.ended == std::vector<std::string>{"4"});
    CHECK(alone.bench.alive == 0);
    CHECK(alone.took < 1100ms);
}

// ---- the call and the context of tasks ----------------------------------------------------------

constexpr MethodId work_method("test.Combined/Work");

struct Combined final : Service {
    explicit Combined(EchoClient to) : stub(std::move(to)) {}
    EchoClient stub;
    std::vector<Code> codes;
    bool ended = false;

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(work_method,
                      [this](Call call) { detail::run_detached(work(std::move(call)), [] {}); });
    }
    Task<Status> sleeps(Duration time) { co_return co_await sleep_for(time); }
    // Resumed by a plain post, and so outside of any call.
    Task<Status> posted() {
        struct ByHand {
            bool await_ready() const { return false; }
            void await_suspend(std::coroutine_handle<> awaiting) {
                Executor::current()->post([awaiting] { awaiting.resume(); });
            }
            void await_resume() const {}
        };
        co_await ByHand();
        co_return Status();
    }
    Task<void> work(Call call) {
        (void)co_await when_any(sleeps(1h), posted());
        (void)co_await when_all(posted(), posted());
        (void)co_await with_timeout(1h, posted());
        auto both = co_await when_all(with_timeout(1h, sleeps(2h)), held(stub));
        codes = {both.get<0>().code(), both.get<1>().code()};
        call.reply({});
        ended = true;
    }
};

TEST_CASE("combined tasks of a handler end when its call is cancelled, also after a post") {
    EchoServer behind;
    CallOutcome outcome;
    std::optional<Combined> service;
    SimRig rig;
    Runtime& back = rig.add("back");
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    REQUIRE(back.add(behind).ok());
    service.emplace(EchoClient(server.connect("sim://back").value()));
    REQUIRE(server.add(*service).ok());
    const Channel channel = client.connect("sim://server").value();
    const OperationId id = channel.call(work_method, {}, {.timeout = 3h}, outcome.done());
    REQUIRE(rig.run_until([&] { return behind.waiting == 1; }));
    channel.cancel_call(id);
    REQUIRE(rig.run_until([&] { return service->ended; }, 1s));
    CHECK(service->codes == std::vector<Code>{Code::cancelled, Code::cancelled});
    REQUIRE(rig.run_until([&] { return behind.waiting == 0; }, 1s));
}

TEST_CASE("combined tasks are refused on a thread without a context, empty ones on any thread") {
    std::string text;
    struct {
        OwnedCoroutine operator()(std::string& said, Bench& bench) {
            try {
                (void)co_await when_all(nothing_after(0ms, bench), nothing_after(0ms, bench));
            } catch (const std::logic_error& error) {
                said = error.what();
            }
        }
    } ask;
    Alone alone;
    std::thread([&] { ask(text, alone.bench); }).join();
    CHECK(text.find("Runtime::spawn") != text.npos);
    const std::string_view empty = "empty task";
    Bench& bench = alone.bench;
    const auto is_refused = [&](const std::string& said) { return said.find(empty) != said.npos; };
    CHECK(is_refused(alone.thrown(when_all(value_after(0ms, 1, bench), Task<int>()))));
    CHECK(is_refused(alone.thrown(when_any(value_after(0ms, 1, bench), Task<int>()))));
    CHECK(is_refused(alone.thrown(with_timeout(1s, Task<int>()))));
    CHECK(is_refused(alone.thrown(when_any(std::vector<Task<int>>()))));
    CHECK(bench.ended.empty());
}

}  // namespace combine_test
