// Waits of runtimes for each other: a deadlock aborts the program at once with a message. And
// block_on() of a runtime that another thread turns.
#include <unistd.h>

#include <chrono>
#include <functional>
#include <future>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include <weft/offload.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "core/blocked_turn.h"
#include "support/child.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace weft::blocked_turn_test {
namespace {

using namespace weft::test;

Runtime quiet() { return Runtime::create({.log_level = LogLevel::off}).value(); }
Runtime by_hand() { return Runtime::create({.log_level = LogLevel::off, .manual = true}).value(); }

Task<int> seven() { co_return 7; }

std::string name_of(std::size_t index) {
    return "sm://circle-" + std::to_string(::getpid()) + "-" + std::to_string(index);
}

// `size` runtimes, each with a handler that waits for the next one once all handlers have begun.
ChildOutput said_by_circle(std::ptrdiff_t size, const std::function<void(Runtime& awaited)>& wait) {
    return output_of_child([&] {
        ::alarm(20);
        std::vector<Runtime> runtimes;
        for (std::ptrdiff_t i = 0; i < size; ++i) {
            runtimes.push_back(quiet());
            if (!runtimes.back().listen(name_of(runtimes.size() - 1)).ok()) return 1;
        }
        std::latch begun(size);
        std::promise<void> never_set;
        for (std::size_t i = 0; i < runtimes.size(); ++i) {
            runtimes[i].executor().post([&, i] {
                begun.arrive_and_wait();
                wait(runtimes[(i + 1) % runtimes.size()]);
            });
        }
        never_set.get_future().wait();
        return 0;
    });
}

void check_deadlock(const ChildOutput& output, const char* call, std::size_t size) {
    CAPTURE(output.text);
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find(call) != std::string::npos);
    CHECK(output.text.find("which waits for the runtime at sm://circle-") != std::string::npos);
    for (std::size_t i = 0; i < size; ++i) {
        CHECK(output.text.find("-" + std::to_string(i)) != std::string::npos);
    }
}

TEST_CASE("handlers of two or three runtimes that wait in a circle abort with a message") {
    for (const std::size_t size : {2u, 3u}) {
        INFO(size << " runtimes");
        check_deadlock(said_by_circle(static_cast<std::ptrdiff_t>(size),
                                      [](Runtime& awaited) { awaited.block_on(seven()); }),
                       "Runtime::block_on()", size);
    }
}

TEST_CASE("operations that wait for a runtime's thread close a circle of waits, too") {
    check_deadlock(said_by_circle(2, [](Runtime& awaited) { (void)awaited.listen("sm://late"); }),
                   "weft::Runtime", 2);
    check_deadlock(
        said_by_circle(2, [](Runtime& awaited) { (void)awaited.connect("sm://absent"); }),
        "weft::Runtime", 2);
}

// Returns when a handler of `runtime` waits for another one.
void await_wait_in(Runtime& runtime) {
    while (!core::BlockedTurn::is_context_blocked(node_of(runtime).context))
        std::this_thread::yield();
}

// A handler of the first runtime destroys the second one; a handler of the second one waits for the
// first.
ChildOutput said_by_end_of_other(std::function<void(Runtime& awaited)> wait, bool is_end_last) {
    return output_of_child([&] {
        ::alarm(20);
        auto first = std::make_unique<Runtime>(quiet()),
             second = std::make_unique<Runtime>(quiet());
        if (!first->listen(name_of(0)).ok() || !second->listen(name_of(1)).ok()) return 1;
        std::promise<void> begun, never_set;
        first->executor().post([&] {
            begun.get_future().wait();
            if (is_end_last) await_wait_in(*second);
            second.reset();
        });
        second->executor().post([&] {
            begun.set_value();
            if (!is_end_last) await_wait_in(*first);
            wait(*first);
        });
        never_set.get_future().wait();
        return 0;
    });
}

TEST_CASE("destroying a runtime with a handler that waits for this thread closes a circle") {
    for (const bool is_end_last : {true, false}) {
        INFO("the end is last: " << is_end_last);
        check_deadlock(said_by_end_of_other(
                           [](Runtime& first) { (void)first.connect("sm://absent"); }, is_end_last),
                       is_end_last ? "Runtime::~Runtime()" : "weft::Runtime", 2);
        check_deadlock(
            said_by_end_of_other([](Runtime& first) { first.block_on(seven()); }, is_end_last),
            is_end_last ? "Runtime::~Runtime()" : "Runtime::block_on()", 2);
    }
}

TEST_CASE("a forked child has none of its parent's waits between runtimes") {
    Runtime a = quiet(), b = quiet();
    std::promise<void> over, goes_on;
    const auto waits = [](std::future<void> until) -> Task<int> {
        const auto wait = [&] { until.wait(); };
        co_await offload(wait);
        co_return 7;
    };
    a.executor().post([&] {
        (void)b.block_on(waits(goes_on.get_future()));
        over.set_value();
    });
    await_wait_in(a);
    const int end = end_of_child([] {
        if (!can_start_threads_in_child) return 0;
        for (int i = 0; i < 20; ++i) {
            Runtime c = quiet(), d = quiet();
            std::promise<int> done;
            c.executor().post([&] { done.set_value(d.block_on(seven())); });
            if (done.get_future().get() != 7) return 1;
        }
        return 0;
    });
    CHECK(end == 0);
    goes_on.set_value();
    over.get_future().wait();
}

Task<int> never_ends() {
    (void)co_await sleep_for(1h);
    co_return 1;
}

TEST_CASE("exit() ends with its code while a handler of a static runtime waits for another one") {
    // `first` is destroyed last; its handler or offloaded work waits for `second`.
    struct Two {
        Runtime first = quiet(), second = quiet();
    };
    using Place = void (*)(Two & two);
    const std::pair<const char*, Place> places[] = {
        {"a callback of the awaited one",
         [](Two& two) { two.second.executor().post([] { std::exit(7); }); }},
        {"offloaded work of the awaited one",
         [](Two& two) { two.second.executor().offload([] { std::exit(7); }); }},
        {"beside its run()",
         [](Two& two) {
             std::thread([&] { (void)two.second.run(); }).detach();
             while (!impl_of(two.second).is_in_use()) std::this_thread::yield();
             std::exit(7);
         }},
    };
    for (const bool is_offloaded : {false, true}) {
        for (const auto& one : places) {
            // Offloaded work never ends when it waits for a runtime that exit() leaves inside its
            // turn.
            if (is_offloaded && &one == &places[0]) continue;
            CAPTURE(one.first, is_offloaded);
            const ChildOutput output = output_of_child([&] {
                ::alarm(20);
                static Two two;
                static std::promise<void> begun;
                const auto waits = [] {
                    begun.set_value();
                    try {
                        (void)two.second.block_on(never_ends());
                    } catch (const BadResult&) {
                        // The runtime is not turned any more.
                    }
                };
                Executor& first = two.first.executor();
                is_offloaded ? first.offload(waits) : first.post(waits);
                begun.get_future().wait();
                if (!is_offloaded) await_wait_in(two.first);
                one.second(two);
                while (true) ::pause();
                return 0;
            });
            CAPTURE(output.text);
            CHECK(output.end == 7);
            CHECK(output.text.find("weft: exit() ") != std::string::npos);
        }
    }
}

TEST_CASE("a circle of waits through a runtime turned by hand aborts with a message") {
    const ChildOutput output = output_of_child([] {
        ::alarm(20);
        Runtime threaded = quiet();
        Runtime turned = by_hand();
        if (!threaded.listen(name_of(0)).ok() || !turned.listen(name_of(1)).ok()) return 1;
        turned.turn();
        std::latch begun(2);
        threaded.executor().post([&] {
            begun.arrive_and_wait();
            turned.block_on(seven());
        });
        turned.executor().post([&] {
            begun.arrive_and_wait();
            threaded.block_on(seven());
        });
        turned.turn_until([] { return false; }, 1h);
        return 0;
    });
    CAPTURE(output.text);
    CHECK(output.end == -SIGABRT);
    CHECK(output.text.find("Runtime::block_on()") != std::string::npos);
    CHECK(output.text.find("-0") != std::string::npos);
    CHECK(output.text.find("-1") != std::string::npos);
}

TEST_CASE("a wait that has ended closes no circle of waits") {
    Runtime left = quiet();
    Runtime right = quiet();
    for (int i = 0; i < 300; ++i) {
        std::promise<int> from_left, from_right;
        // Runs on `right` right after the task has ended: `left` may not have noticed the end yet.
        struct {
            Task<int> operator()(Runtime& here, Runtime& there, std::promise<int>& result) {
                here.executor().post([&] { result.set_value(there.block_on(seven())); });
                co_return 7;
            }
        } ends_and_waits;
        left.executor().post(
            [&] { from_left.set_value(right.block_on(ends_and_waits(right, left, from_right))); });
        REQUIRE(from_left.get_future().get() == 7);
        REQUIRE(from_right.get_future().get() == 7);
    }
}

TEST_CASE("offloaded work of two runtimes may wait for the other runtime") {
    Runtime left = quiet();
    Runtime right = quiet();
    std::latch begun(2);
    struct {
        Task<int> operator()(Runtime& other, std::latch& both) {
            const auto wait = [&] {
                both.arrive_and_wait();
                return other.block_on(seven());
            };
            co_return co_await offload(wait);
        }
    } ask;
    auto from_left =
        std::async(std::launch::async, [&] { return left.block_on(ask(right, begun)); });
    CHECK(right.block_on(ask(left, begun)) == 7);
    CHECK(from_left.get() == 7);
}

// ---- a runtime that is turned by hand ----------------------------------------------------------

Task<std::thread::id> thread_of_task() { co_return std::this_thread::get_id(); }

// Runs `body` on another thread, then wakes the thread that turns.
template <class Body>
auto elsewhere(Runtime& runtime, Body body) {
    return std::async(std::launch::async, [&runtime, body] {
        auto result = body();
        runtime.executor().post([] {});
        return result;
    });
}

template <class T>
T turned_for(Runtime& runtime, std::future<T>& other) {
    const auto is_done = [&] { return other.wait_for(0s) == std::future_status::ready; };
    while (!is_done()) runtime.turn_until(is_done, 10ms);
    return other.get();
}

TEST_CASE("turn_until() returns when a timer makes its condition true") {
    Runtime runtime = by_hand();
    bool is_over = false;
    struct {
        Task<void> operator()(bool& over) {
            (void)co_await sleep_for(1ms);
            over = true;
        }
    } sleeps;
    runtime.spawn(sleeps(is_over));
    const auto start = std::chrono::steady_clock::now();
    CHECK(runtime.turn_until([&] { return is_over; }, 20s));
    CHECK(std::chrono::steady_clock::now() - start < 10s);
}

TEST_CASE("block_on() leaves the turns to the thread that turns the runtime") {
    Runtime runtime = by_hand();
    runtime.turn();
    auto other = elsewhere(runtime, [&] { return runtime.block_on(thread_of_task()); });
    // Long enough for block_on() if it turned the runtime itself.
    CHECK(other.wait_for(100ms) == std::future_status::timeout);
    CHECK(turned_for(runtime, other) == std::this_thread::get_id());
}

TEST_CASE("block_on() completes on several threads while one thread turns") {
    Runtime runtime = by_hand();
    runtime.turn();
    std::vector<std::future<int>> others;
    for (int i = 0; i < 4; ++i) {
        others.push_back(elsewhere(runtime, [&] {
            int sum = 0;
            for (int round = 0; round < 50; ++round) sum += runtime.block_on(seven());
            return sum;
        }));
    }
    for (auto& other : others) CHECK(turned_for(runtime, other) == 350);
}

TEST_CASE("block_on() logs a warning when the thread that turned the runtime has stopped") {
    std::promise<std::string> logged;
    RuntimeOptions options;
    options.manual = true;
    options.log_sink = [&](LogLevel, std::string_view line) {
        logged.set_value(std::string(line));
    };
    Runtime runtime = Runtime::create(options).value();
    runtime.turn();
    auto other = elsewhere(runtime, [&] { return runtime.block_on(seven()); });
    CHECK(logged.get_future().get().find("call turn() first") != std::string::npos);
    CHECK(turned_for(runtime, other) == 7);
}

TEST_CASE("block_on() turns the runtime itself when no thread turns it") {
    Runtime runtime = by_hand();
    std::thread::id ran_on, waited_on;
    std::thread([&] {
        waited_on = std::this_thread::get_id();
        ran_on = runtime.block_on(thread_of_task());
    }).join();
    CHECK(ran_on == waited_on);
    // The other thread has ended and does not turn the runtime.
    CHECK(runtime.block_on(seven()) == 7);
}

}  // namespace
}  // namespace weft::blocked_turn_test
