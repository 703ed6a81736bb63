#include <weft/task.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

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

TEST_CASE("moving a task empties the one moved from") {
    int started = 0;
    Task<int> task = number(started, 5);
    Task<int> moved = std::move(task);
    CHECK_FALSE(task);
    CHECK(moved);
    task = std::move(moved);
    CHECK(task);
    task = Task<int>();
    CHECK_FALSE(task);
    CHECK(started == 0);
}

TEST_CASE("an exception is rethrown to whoever awaits") {
    std::optional<std::string> result;
    OwnedCoroutine running = run(catching(), result);
    CHECK(result == "no number");
}

TEST_CASE("a task returns what can only be moved") {
    struct {
        Task<std::unique_ptr<int>> operator()() { co_return std::make_unique<int>(3); }
    } make;
    std::optional<std::unique_ptr<int>> result;
    OwnedCoroutine running = run(make(), result);
    CHECK(**result == 3);
}

TEST_CASE("destroying a suspended task destroys the whole chain below it, once") {
    Gate gate;
    int alive = 0;
    std::optional<int> result;
    OwnedCoroutine running = run(around_gate(gate, alive), result);
    CHECK(alive == 2);
    running.destroy();
    CHECK(alive == 0);
    CHECK_FALSE(result.has_value());
}

TEST_CASE("a suspended chain goes on where it was and ends clean") {
    Gate gate;
    int alive = 0;
    std::optional<int> result;
    OwnedCoroutine running = run(around_gate(gate, alive), result);
    gate.release();
    CHECK(result == 2);
    CHECK(alive == 0);
}

TEST_CASE("neither a deep chain nor a long loop of tasks eats the stack") {
    // Symmetric transfer is a tail call, which g++ makes from -O2 on only.
#if defined(__OPTIMIZE__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    const int length = 1'000'000;
#else
    const int length = 500;
#endif
    std::optional<int> result, looped;
    OwnedCoroutine deep = run(nest(length), result);
    CHECK(result == length);
    OwnedCoroutine loop = run(repeat(length), looped);
    CHECK(looped == length);
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

TEST_CASE("a spawned task runs by itself") {
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
