#include <weft/task.h>

#include <atomic>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <weft/offload.h>
#include <weft/runtime.h>

#include "support/catch.h"
#include "support/gate.h"
#include "support/owned_coroutine.h"

using namespace weft;
using test::Alive;
using test::Gate;
using test::OwnedCoroutine;

namespace {

// `if (!store.Get(key))` without co_await makes no call, so it does not compile.
static_assert(!std::is_constructible_v<bool, Task<int>>);

Task<int> number(int& started, int value) {
    ++started;
    co_return value;
}

template <class T>
OwnedCoroutine run(Task<T> task, std::optional<T>& into) {
    into.emplace(co_await task);
}

Task<int> throwing() {
    throw std::runtime_error("no number");
    co_return 0;
}

Task<std::string> catching() {
    try {
        (void)co_await throwing();
    } catch (const std::runtime_error& error) {
        co_return error.what();
    }
    co_return "nothing thrown";
}

Task<int> at_gate(Gate& gate, int& alive) {
    const Alive local(alive);
    co_await gate;
    co_return 1;
}

Task<int> around_gate(Gate& gate, int& alive) {
    const Alive local(alive);
    co_return co_await at_gate(gate, alive) + 1;
}

Task<int> nest(int depth) {
    if (depth == 0) co_return 0;
    co_return co_await nest(depth - 1) + 1;
}

Task<int> repeat(int times) {
    int sum = 0, started = 0;
    for (int i = 0; i < times; ++i) sum += co_await number(started, 1);
    co_return sum;
}

RuntimeOptions quiet() {
    RuntimeOptions options;
    options.log_level = LogLevel::off;
    return options;
}

}  // namespace

TEST_CASE("a task starts when it is awaited, not before") {
    int started = 0;
    Task<int> task = number(started, 5);
    CHECK(started == 0);
    std::optional<int> result;
    OwnedCoroutine running = run(std::move(task), result);
    CHECK(started == 1);
    CHECK(result == 5);
    { Task<int> never_awaited = number(started, 6); }
    CHECK(started == 1);
}

TEST_CASE("moving a task empties the source") {
    int started = 0;
    Task<int> task = number(started, 5);
    Task<int> moved = std::move(task);
    CHECK(task.empty());
    CHECK_FALSE(moved.empty());
    task = std::move(moved);
    CHECK_FALSE(task.empty());
    task = Task<int>();
    CHECK(task.empty());
    CHECK(started == 0);
}

TEST_CASE("an exception of a task is rethrown to its awaiter") {
    std::optional<std::string> result;
    OwnedCoroutine running = run(catching(), result);
    CHECK(result == "no number");
}

TEST_CASE("a task returns a move-only value") {
    struct {
        Task<std::unique_ptr<int>> operator()() { co_return std::make_unique<int>(3); }
    } make;
    std::optional<std::unique_ptr<int>> result;
    OwnedCoroutine running = run(make(), result);
    CHECK(**result == 3);
}

TEST_CASE("destroying a suspended task destroys the whole chain below it once") {
    Gate gate;
    int alive = 0;
    std::optional<int> result;
    OwnedCoroutine running = run(around_gate(gate, alive), result);
    CHECK(alive == 2);
    running.destroy();
    CHECK(alive == 0);
    CHECK_FALSE(result.has_value());
}

TEST_CASE("a suspended chain resumes where it was and destroys its frames") {
    Gate gate;
    int alive = 0;
    std::optional<int> result;
    OwnedCoroutine running = run(around_gate(gate, alive), result);
    gate.release();
    CHECK(result == 2);
    CHECK(alive == 0);
}

TEST_CASE("a deep chain of tasks uses no stack where the compiler makes tail calls") {
    const int length = detail::has_tail_calls ? 1'000'000 : 500;
    std::optional<int> result;
    OwnedCoroutine deep = run(nest(length), result);
    CHECK(result == length);
}

// ---- a task starts by symmetric transfer or by a call, as the compiler requires -----------------

namespace {

// Awaits a task in the chosen way.
template <bool transfers, class T>
struct Starts {
    Task<T> task;
    auto operator co_await() {
        return detail::TaskAwaiter<T, transfers>(detail::TaskAccess::handle(task));
    }
};

template <bool transfers>
Task<int> rounds(int times) {
    int sum = 0, started = 0;
    for (int i = 0; i < times; ++i) {
        Starts<transfers, int> one{number(started, 1)};
        sum += co_await one;
    }
    co_return sum;
}

template <bool transfers>
Task<int> catches() {
    Starts<transfers, int> one{throwing()};
    try {
        co_return co_await one;
    } catch (const std::runtime_error&) {
        co_return 7;
    }
}

template <bool transfers>
Task<int> behind_gate(Gate& gate, int& alive, int times) {
    int sum = 0;
    for (int i = 0; i < times; ++i) {
        Starts<transfers, int> one{at_gate(gate, alive)};
        sum += co_await one;
    }
    co_return sum;
}

// Resumed, or destroyed together with its awaiter, while it is being suspended.
struct Meanwhile {
    std::function<void(std::coroutine_handle<>)> act;
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> self) const {
        const auto kept = act;  // The coroutine, which owns `act`, may be destroyed.
        kept(self);
    }
    void await_resume() const {}
};

Task<int> meanwhile(Meanwhile& what, int& alive) {
    const Alive local(alive);
    co_await what;
    co_return 3;
}

template <bool transfers>
Task<int> awaits_meanwhile(Meanwhile& what, int& alive) {
    const Alive local(alive);
    Starts<transfers, int> one{meanwhile(what, alive)};
    co_return co_await one + 1;
}

template <bool transfers>
void check_starts() {
    std::optional<int> result;
    const auto runs = [&](Task<int> task) {
        result.reset();
        return run(std::move(task), result);
    };
    int alive = 0;

    OwnedCoroutine thrown = runs(catches<transfers>());
    CHECK(result == 7);

    Gate gate;
    OwnedCoroutine later = runs(behind_gate<transfers>(gate, alive, 3));
    for (int i = 0; i < 3; ++i) gate.release();
    CHECK(result == 3);
    OwnedCoroutine dropped = runs(behind_gate<transfers>(gate, alive, 3));
    gate.release();
    CHECK(alive == 1);
    dropped.destroy();
    CHECK(alive == 0);

    Meanwhile resumes{[](std::coroutine_handle<> self) { self.resume(); }};
    OwnedCoroutine at_once = runs(awaits_meanwhile<transfers>(resumes, alive));
    CHECK(result == 4);
    CHECK(alive == 0);

    Task<int> whole;
    Meanwhile destroys{[&](std::coroutine_handle<>) { whole = Task<int>(); }};
    whole = awaits_meanwhile<transfers>(destroys, alive);
    detail::TaskAccess::handle(whole).resume();
    CHECK(alive == 0);
}

}  // namespace

TEST_CASE("a loop over tasks that end at once takes no more stack with each round") {
    std::optional<int> called, looped;
    OwnedCoroutine by_call = run(rounds<false>(1'000'000), called);
    CHECK(called == 1'000'000);
    OwnedCoroutine loop = run(repeat(1'000'000), looped);
    CHECK(looped == 1'000'000);
}

TEST_CASE("a task that starts by a transfer completes, waits, throws and is destroyed") {
    check_starts<true>();
}

TEST_CASE("a task that starts by a call completes, waits, throws and is destroyed") {
    check_starts<false>();
}

TEST_CASE("block_on returns the value and rethrows the exception on the calling thread") {
    Runtime runtime = Runtime::create(quiet()).value();
    int started = 0;
    CHECK(runtime.block_on(number(started, 9)) == 9);
    CHECK(runtime.block_on(catching()) == "no number");
    CHECK_THROWS_AS(runtime.block_on(throwing()), std::runtime_error);
}

TEST_CASE("a task runs on its runtime's thread, and resumes there from offload") {
    Runtime runtime = Runtime::create(quiet()).value();
    struct {
        Task<bool> operator()(Runtime& of) {
            const auto home = std::this_thread::get_id();
            const auto there = [] { return std::this_thread::get_id(); };
            const auto away = co_await offload(there);
            co_return home != away&& home == std::this_thread::get_id() &&
                Executor::current() == &of.executor();
        }
    } hop;
    CHECK(runtime.block_on(hop(runtime)));
    struct {
        Task<std::string> operator()() {
            const auto fails = []() -> int { throw std::runtime_error("disk on fire"); };
            try {
                (void)co_await offload(fails);
            } catch (const std::runtime_error& error) {
                co_return error.what();
            }
            co_return "";
        }
    } burn;
    CHECK(runtime.block_on(burn()) == "disk on fire");
}

TEST_CASE("an exception that leaves a spawned task is logged") {
    std::vector<std::string> errors;
    RuntimeOptions options;
    options.manual = true;
    options.log_sink = [&](LogLevel level, std::string_view line) {
        if (level == LogLevel::error) errors.emplace_back(line);
    };
    Runtime runtime = Runtime::create(options).value();
    runtime.spawn([]() -> Task<void> { (void)co_await throwing(); }());
    runtime.spawn([]() -> Task<void> {
        throw 1;
        co_return;
    }());
    CHECK(runtime.turn_until([&] { return errors.size() == 2; }, 10s));
    CHECK(errors.at(0).find("spawned task: no number") != std::string::npos);
    CHECK(errors.at(1).ends_with("spawned task"));
}

TEST_CASE("a spawned task runs without an awaiter") {
    std::atomic<bool> ran = false;
    Runtime runtime = Runtime::create(quiet()).value();
    struct {
        Task<void> operator()(std::atomic<bool>& flag) {
            flag = true;
            flag.notify_all();
            co_return;
        }
    } set;
    runtime.spawn(set(ran));
    ran.wait(false);
    CHECK(ran);
}

TEST_CASE("a spawned callable is kept until its task has completed") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    Gate gate;
    std::string seen;
    int alive = 0;
    {
        // The captures live in the coroutine frame, not in the destroyed lambda.
        auto local = std::make_shared<Alive>(alive);
        const std::string text(100, 'x');
        runtime.spawn([&seen, &gate, local, text]() -> Task<void> {
            co_await gate;
            seen = text;
        });
    }
    const std::function<Task<void>()> copied = [&seen]() -> Task<void> {
        seen += "y";
        co_return;
    };
    runtime.turn();
    CHECK(alive == 1);
    gate.release();
    CHECK(seen == std::string(100, 'x'));
    CHECK(alive == 0);
    runtime.spawn(copied);
    runtime.turn();
    CHECK(seen.back() == 'y');
}

namespace {

Task<Status> status_of_braces() { co_return {}; }
Task<Result<std::string>> result_of_braces() { co_return {}; }
Task<std::vector<int>> value_of_braces() { co_return {}; }
Task<std::pair<int, std::string>> pair_of_braces() { co_return {7, "x"}; }
Result<std::string> plain_result_of_braces() { return {}; }

}  // namespace

TEST_CASE("a task returns the value that co_return initializes with braces") {
    Runtime runtime = Runtime::create({.manual = true}).value();
    CHECK(runtime.block_on(status_of_braces()).ok());
    const Result<std::string> result = runtime.block_on(result_of_braces());
    REQUIRE(result.ok());
    CHECK(result->empty());
    CHECK(runtime.block_on(value_of_braces()).empty());
    CHECK(runtime.block_on(pair_of_braces()) == std::pair<int, std::string>(7, "x"));
    CHECK(plain_result_of_braces().ok());
}
