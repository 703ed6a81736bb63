// Waits of runtimes for each other: those that would never end do so at once, with a sentence; and
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

#include "api/node.h"
#include "core/blocked_turn.h"
#include "support/child.h"
#include "support/patience.h"
#include "support/raw_echo.h"

namespace weft::blocked_turn_test {
namespace {

using namespace weft::test;

Runtime quiet() { return Runtime::create({.log_level = LogLevel::off}).value(); }
Runtime by_hand() { return Runtime::create({.log_level = LogLevel::off, .manual = true}).value(); }

Task<int> seven() { co_return 7; }

std::string name_of(std::size_t index) {
    return "sm://circle-" + std::to_string(::getpid()) + "-" + std::to_string(index);
}

// So many runtimes, each with a handler that begins when all have begun, and waits for the next.
Said said_by_circle(std::ptrdiff_t size, const std::function<void(Runtime& awaited)>& wait) {
    return said_by_child([&] {
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

void check_circle(const Said& said, const char* call, std::size_t size) {
    CAPTURE(said.text);
    CHECK(said.end == -SIGABRT);
    CHECK(said.text.find(call) != std::string::npos);
    CHECK(said.text.find("which waits for the runtime at sm://circle-") != std::string::npos);
    for (std::size_t i = 0; i < size; ++i) {
        CHECK(said.text.find("-" + std::to_string(i)) != std::string::npos);
    }
}

TEST_CASE("handlers of two runtimes, or three, that wait for each other end with a sentence") {
    for (const std::size_t size : {2u, 3u}) {
        INFO(size << " runtimes");
        check_circle(said_by_circle(static_cast<std::ptrdiff_t>(size),
                                    [](Runtime& awaited) { awaited.block_on(seven()); }),
                     "Runtime::block_on()", size);
    }
}

TEST_CASE("operations of a runtime that wait for its thread close a circle of waits, too") {
    check_circle(said_by_circle(2, [](Runtime& awaited) { (void)awaited.addresses(); }),
                 "weft::Runtime", 2);
    check_circle(said_by_circle(2, [](Runtime& awaited) { (void)awaited.connect("sm://absent"); }),
                 "weft::Runtime", 2);
}

// Returns when a handler of `runtime` waits for another one.
void await_wait_in(Runtime& runtime) {
    while (!core::BlockedTurn::is_any_of(runtime.node().context)) std::this_thread::yield();
}

// The first ends the second, in whose handler it waits for the first.
Said said_by_end_of_other(std::function<void(Runtime& awaited)> wait, bool is_end_last) {
    return said_by_child([&] {
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

TEST_CASE("the end of a runtime, in a handler that its own handler waits for, closes a circle") {
    for (const bool is_end_last : {true, false}) {
        INFO("the end is last: " << is_end_last);
        check_circle(said_by_end_of_other(
                         [](Runtime& first) { (void)first.connect("sm://absent"); }, is_end_last),
                     is_end_last ? "Runtime::~Runtime()" : "weft::Runtime", 2);
        check_circle(
            said_by_end_of_other([](Runtime& first) { first.block_on(seven()); }, is_end_last),
            is_end_last ? "Runtime::~Runtime()" : "Runtime::block_on()", 2);
    }
}

TEST_CASE("a child forked while a handler waits for another runtime has waits of its own only") {
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

TEST_CASE("exit() while a handler of one static runtime waits for another one ends as asked") {
    // The first is destroyed last; a handler of one of them waits for the other.
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
             while (!two.second.node().is_in_use()) std::this_thread::yield();
             std::exit(7);
         }},
    };
    for (const bool is_offloaded : {false, true}) {
        for (const auto& one : places) {
            // What is offloaded and waits for a runtime that is left in its turn never ends.
            if (is_offloaded && &one == &places[0]) continue;
            CAPTURE(one.first, is_offloaded);
            const Said said = said_by_child([&] {
                ::alarm(20);
                static Two two;
                static std::promise<void> begun;
                const auto waits = [] {
                    begun.set_value();
                    try {
                        (void)two.second.block_on(never_ends());
                    } catch (const BadResult&) {
                        // Its turns are over.
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
            CAPTURE(said.text);
            CHECK(said.end == 7);
            CHECK(said.text.find("weft: exit() ") != std::string::npos);
        }
    }
}

TEST_CASE("a circle of waits through a runtime that is turned by hand ends with a sentence") {
    const Said said = said_by_child([] {
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
    CAPTURE(said.text);
    CHECK(said.end == -SIGABRT);
    CHECK(said.text.find("Runtime::block_on()") != std::string::npos);
    CHECK(said.text.find("-0") != std::string::npos);
    CHECK(said.text.find("-1") != std::string::npos);
}

TEST_CASE("a handler waits for another runtime, and a wait that is over closes no circle") {
    Runtime left = quiet();
    Runtime right = quiet();
    for (int i = 0; i < 300; ++i) {
        std::promise<int> from_left, from_right;
        // Runs on the right right after the end of the task: the left may not have noticed it yet.
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

TEST_CASE("offloaded work of two runtimes may wait for the other one") {
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

// On another thread, and wakes the one that turns when it has ended.
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

TEST_CASE("turn_until returns when a timer has ended what it waits for") {
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

TEST_CASE("block_on on another thread than the one that turns leaves the turns to that") {
    Runtime runtime = by_hand();
    runtime.turn();
    auto other = elsewhere(runtime, [&] { return runtime.block_on(thread_of_task()); });
    // Long enough for a thread that turned it itself.
    CHECK(other.wait_for(100ms) == std::future_status::timeout);
    CHECK(turned_for(runtime, other) == std::this_thread::get_id());
}

TEST_CASE("block_on on several threads ends on each while one thread turns") {
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

TEST_CASE("block_on says so when the thread that turned the runtime does so no more") {
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

TEST_CASE("block_on of a runtime that no thread has turned turns it itself in the end") {
    Runtime runtime = by_hand();
    std::thread::id ran_on, waited_on;
    std::thread([&] {
        waited_on = std::this_thread::get_id();
        ran_on = runtime.block_on(thread_of_task());
    }).join();
    CHECK(ran_on == waited_on);
    CHECK(runtime.block_on(seven()) == 7);  // The other one has gone, and does not turn it.
}

}  // namespace
}  // namespace weft::blocked_turn_test
