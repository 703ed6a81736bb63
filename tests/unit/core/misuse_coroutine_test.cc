// Misused coroutines, and coroutines that run for ever when their runtime ends.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <future>
#include <memory>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include <weft/await.h>
#include <weft/combine.h>
#include <weft/offload.h>
#include <weft/sim.h>

#include "support/gate.h"
#include "support/open_files.h"
#include "support/owned_coroutine.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace misuse_coroutine_test {

using namespace weft;
using namespace weft::test;

RuntimeOptions quiet() {
    RuntimeOptions options;
    options.log_level = LogLevel::off;
    return options;
}

Task<int> number_at(Gate& gate) {
    co_await gate;
    co_return 7;
}

OwnedCoroutine await_into(Task<int>& task, int& value, std::string& thrown) {
    try {
        value = co_await task;
    } catch (const std::logic_error& error) {
        thrown = error.what();
    }
}

TEST_CASE("a second awaiter of a task gets an error text, and the first one gets the value") {
    Gate gate;
    Task<int> task = number_at(gate);
    int first = 0, second = 0;
    std::string none, refusal;
    const OwnedCoroutine one = await_into(task, first, none);
    const OwnedCoroutine two = await_into(task, second, refusal);
    CHECK(refusal.find("Task") != refusal.npos);
    CHECK(refusal.find("once") != refusal.npos);
    CHECK(second == 0);
    gate.release();
    CHECK(first == 7);
    CHECK(none.empty());
}

TEST_CASE("a completed task is refused when it is awaited again") {
    Gate gate;
    Task<int> task = number_at(gate);
    int first = 0, second = 0;
    std::string none, refusal;
    const OwnedCoroutine one = await_into(task, first, none);
    gate.release();
    const OwnedCoroutine two = await_into(task, second, refusal);
    CHECK(first == 7);
    CHECK(second == 0);
    CHECK(refusal.find("once") != refusal.npos);
}

TEST_CASE("a task is refused when it is awaited again after its awaiter was dropped") {
    Gate gate;
    Task<int> task = number_at(gate);
    int first = 0, second = 0;
    std::string none, refusal;
    OwnedCoroutine one = await_into(task, first, none);
    one.destroy();
    const OwnedCoroutine two = await_into(task, second, refusal);
    CHECK(refusal.find("once") != refusal.npos);
}

TEST_CASE("awaiting, spawning or blocking on an empty task is refused with an error text") {
    Task<int> task;
    int value = 0;
    std::string refusal;
    const OwnedCoroutine one = await_into(task, value, refusal);
    CHECK(refusal.find("empty") != refusal.npos);
    Runtime runtime = Runtime::create(quiet()).value();
    CHECK_THROWS_AS(runtime.block_on(Task<int>()), std::logic_error);
    CHECK_THROWS_AS(runtime.spawn(Task<void>()), std::logic_error);
}

OwnedCoroutine offloads(std::string& thrown) {
    const auto work = [] {};
    try {
        co_await offload(work);
    } catch (const std::logic_error& error) {
        thrown = error.what();
    }
}

TEST_CASE("co_await offload outside of a turn is refused with an error text") {
    std::string refusal;
    const OwnedCoroutine one = offloads(refusal);
    CHECK(refusal.find("Runtime::spawn") != refusal.npos);
}

// ---- coroutines that never end -----------------------------------------------------------------

struct Ticker {
    std::atomic<int> ticks{0};
    int alive = 0;
};

Task<void> tick_for_ever(Ticker& ticker, Duration period) {
    const Alive local(ticker.alive);
    const auto pause = [period] { std::this_thread::sleep_for(period); };
    while (true) {
        co_await offload(pause);
        ++ticker.ticks;
    }
}

Task<void> tick_whatever_comes(Ticker& ticker, Duration period) {
    const Alive local(ticker.alive);
    const auto pause = [period] { std::this_thread::sleep_for(period); };
    while (true) {
        try {
            co_await offload(pause);
        } catch (const std::exception&) {
        }
        ++ticker.ticks;
    }
}

TEST_CASE("a coroutine that offloads for ever does not hold up the end of its runtime") {
    const bool is_stubborn = GENERATE(false, true);
    const bool is_manual = GENERATE(false, true);
    CAPTURE(is_stubborn, is_manual);
    constexpr Duration period = 5ms;
    Ticker ticker;
    RuntimeOptions options = quiet();
    options.manual = is_manual;
    options.drain_timeout = 60s;
    auto runtime = std::make_unique<Runtime>(Runtime::create(std::move(options)).value());
    runtime->spawn(is_stubborn ? tick_whatever_comes(ticker, period)
                               : tick_for_ever(ticker, period));
    while (ticker.ticks < 3) is_manual ? void(runtime->turn()) : std::this_thread::yield();
    const auto began = std::chrono::steady_clock::now();
    runtime.reset();
    CHECK(std::chrono::steady_clock::now() - began <
          promised(5s));  // 1000 periods and more before.
    CHECK(ticker.alive == 0);
}

// Calls again after every outcome; `alive` counts the running instances.
Task<void> retry_for_ever(Channel channel, int& alive) {
    const Alive local(alive);
    while (true) (void)co_await weft::call(channel, echo_method, {}, {});
}

Task<void> retry_beside(Channel channel, int& alive) {
    const Alive local(alive);
    (void)co_await when_all(retry_for_ever(channel, alive), retry_for_ever(channel, alive));
}

Task<void> sleep_for_ever(int& alive) {
    const Alive local(alive);
    while (true) (void)co_await sleep_for(1s);
}

// One of the two concurrent tasks is always in offloaded work.
Task<void> retry_and_tick(Channel channel, int& alive, Ticker& ticker) {
    const Alive local(alive);
    (void)co_await when_all(retry_for_ever(channel, alive), tick_whatever_comes(ticker, 0ms));
}

// A handler that never answers and ignores every outcome of its own calls.
struct Stubborn final : Service {
    Channel to;
    int alive = 0;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            detail::run_detached(serve(std::move(call), to, alive), [] {});
        });
    }
    static Task<void> serve(Call call, Channel to, int& alive) {
        const Alive local(alive);
        while (!call.answered()) {
            (void)co_await weft::call(to, MethodId("test.Misuse/None"), {}, {.detached = true});
        }
    }
};

TEST_CASE("a handler that runs for ever is destroyed with its runtime, and so is its call") {
    const int before = open_files();
    CallOutcome outcome;
    Stubborn service;
    {
        SimRig rig;
        Runtime& server = rig.add("server", quiet());
        REQUIRE(server.add(service).ok());
        service.to = server.connect("sim://server").value();
        const Channel channel = rig.add("").connect("sim://server").value();
        channel.call(echo_method, {}, {.timeout = no_timeout}, outcome.done());
        rig.run_for(1s);
        CHECK(service.alive == 1);
        service.to = Channel();
    }
    CHECK(outcome.completions == 1);
    CHECK(service.alive == 0);
    CHECK(open_files() == before);
}

TEST_CASE("coroutines that run for ever are destroyed with their runtime, with all they hold") {
    int alive = 0;
    Ticker ticker;
    const int before = open_files();
    {
        SimRig rig;
        rig.add("server");
        Runtime& client = rig.add("", quiet());
        const Channel channel = client.connect("sim://server").value();
        for (int i = 0; i < 3; ++i) client.spawn(retry_for_ever(channel, alive));
        for (int i = 0; i < 3; ++i) client.spawn(sleep_for_ever(alive));
        client.spawn(retry_beside(channel, alive));
        client.spawn(retry_and_tick(channel, alive, ticker));
        for (int i = 0; i < 10; ++i) client.turn();  // Virtual time would never advance.
        CHECK(alive == 11);
        CHECK(ticker.alive == 1);
    }
    CHECK(alive == 0);
    CHECK(ticker.alive == 0);
    CHECK(open_files() == before);
}

TEST_CASE("block_on of an endless coroutine fails with CANCELLED when its runtime ends") {
    int alive = 0;
    auto runtime = std::make_unique<Runtime>(Runtime::create(quiet()).value());
    const Channel channel = runtime->connect("sm://absent").value();
    std::atomic<bool> begun{false};
    std::string thrown;
    std::thread waiter([&, &executor = *runtime] {
        begun = true;
        try {
            executor.block_on(retry_for_ever(channel, alive));
        } catch (const std::exception& error) {
            thrown = error.what();
        }
    });
    while (!begun) std::this_thread::yield();
    std::promise<void> there;
    runtime->executor().post([&] { there.set_value(); });
    there.get_future().get();
    runtime.reset();
    waiter.join();
    CHECK(thrown.find("CANCELLED") != thrown.npos);
    CHECK(alive == 0);
}

TEST_CASE("a program that crashes and restarts repeatedly in a simulation leaks nothing") {
    int alive = 0;
    const int before = open_files();
    weft::sim::Simulation simulation(1);
    const auto program = [&alive](Runtime& runtime) {
        runtime.spawn(retry_for_ever(runtime.connect("sim://absent").value(), alive));
        return nullptr;
    };
    simulation.add("host", program, quiet());
    for (int i = 0; i < 50; ++i) {
        simulation.run_for(10ms);
        simulation.crash("host");
        CHECK(alive == 0);
        CHECK(open_files() == before);
        simulation.start("host");
    }
}

}  // namespace misuse_coroutine_test
