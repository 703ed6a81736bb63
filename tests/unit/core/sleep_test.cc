// Pauses of coroutines, on virtual time and in real runtimes.
#include <weft/sleep.h>

#include <atomic>
#include <chrono>
#include <thread>

#include <weft/sim.h>

#include "support/child.h"
#include "support/echo.h"
#include "support/owned_coroutine.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace sleep_test {

using namespace weft;
using namespace weft::test;

struct Woken {
    int times = 0;
    Status status;
    TimePoint at{};
};

Task<void> sleep_once(Duration time, Woken& woken) {
    woken.status = co_await sleep_for(time);
    woken.at = now();
    ++woken.times;
}

OwnedCoroutine sleep_owned(Duration time, Woken& woken) {
    woken.status = co_await sleep_for(time);
    ++woken.times;
}

// Starts a coroutine inside a turn and gives it to the test.
Task<void> start_owned(Duration time, Woken& woken, OwnedCoroutine& into) {
    into = sleep_owned(time, woken);
    co_return;
}

constexpr MethodId pause_method("test.Pauser/Pause");

// Sleeps in its handler, for an hour at a time.
struct Pauser final : Service {
    Woken woken;
    Woken later;  // The sleep after that.
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(pause_method,
                      [this](Call call) { detail::run_detached(pause(std::move(call)), [] {}); });
    }
    Task<void> pause(Call call) {
        co_await sleep_once(1h, woken);
        co_await sleep_once(1h, later);
        call.reply({});
    }
};

TEST_CASE("a sleep ends at most 2 ms after its time has passed on the clock of its runtime") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    const Duration time = GENERATE(1ns, 1ms, 20ms, 10s, 20h);
    CAPTURE(time);
    rig.run_for(300us);
    Woken woken;
    const TimePoint start = rig.clock->now();
    runtime.spawn(sleep_once(time, woken));
    REQUIRE(rig.run_until([&] { return woken.times > 0; }, 30h));
    CHECK(woken.status.ok());
    CHECK(woken.at - start >= time);
    CHECK(woken.at - start <= time + 2ms);
}

TEST_CASE("sleeps end in the order of their times, whatever the order they begin in") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    std::vector<int> order;
    struct {
        Task<void> operator()(int after, std::vector<int>& into) {
            const Status slept = co_await sleep_for(after * 5ms);
            if (slept.ok()) into.push_back(after);
        }
    } note;
    for (const int after : {3, 1, 4, 0, 2}) runtime.spawn(note(after, order));
    rig.run_for(1s);
    CHECK(order == std::vector<int>{0, 1, 2, 3, 4});
}

TEST_CASE("a sleep of no time runs after work that is already due") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    std::vector<std::string> order;
    struct {
        Task<void> operator()(Duration time, std::vector<std::string>& into) {
            const Status status = co_await sleep_for(time);
            into.push_back(status.ok() ? "slept" : status.to_string());
        }
    } note;
    runtime.spawn(note(GENERATE(0ns, -5s), order));
    runtime.executor().post([&] { order.push_back("posted"); });
    const TimePoint start = rig.clock->now();
    REQUIRE(rig.run_until([&] { return order.size() == 2; }));
    CHECK(order == std::vector<std::string>{"posted", "slept"});
    CHECK(rig.clock->now() == start);
}

TEST_CASE("a sleep begins when it is made, not when it is awaited") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    Duration took{};
    struct {
        Task<void> operator()(Duration& into) {
            const TimePoint start = now();
            auto whole = sleep_for(30ms);
            (void)co_await sleep_for(20ms);
            (void)co_await whole;
            into = now() - start;
        }
    } twice;
    runtime.spawn(twice(took));
    rig.run_for(1s);
    CHECK(took >= 30ms);
    CHECK(took <= 32ms);
}

TEST_CASE("a sleep that is destroyed wakes nothing") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    Woken woken;
    OwnedCoroutine coroutine;
    runtime.spawn(start_owned(GENERATE(1ns, 20ms, 10s), woken, coroutine));
    runtime.turn();
    const bool ends_first = GENERATE(false, true);
    // After its runtime, with no clock and no timers left.
    if (ends_first) rig.runtimes.clear();
    coroutine.destroy();
    if (!ends_first) {
        rig.run_for(20s);
        CHECK(woken.times == 0);
        CHECK(node_of(runtime).context.timers().armed() == 0);
    }
}

TEST_CASE("a sleep that is destroyed in the turn that made it wakes nothing") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    const Duration time = GENERATE(0ms, 20ms);
    Woken woken;
    runtime.executor().post([&] { sleep_owned(time, woken).destroy(); });
    rig.run_for(1s);
    CHECK(woken.times == 0);
}

TEST_CASE("a sleep of a runtime that ends is CANCELLED, once, and so is every later one") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    Woken first, second;
    struct {
        Task<void> operator()(Woken& one, Woken& two) {
            co_await sleep_once(10s, one);
            co_await sleep_once(10s, two);
        }
    } twice;
    runtime.spawn(twice(first, second));
    rig.run_for(1s);
    const TimePoint end = rig.clock->now();
    rig.runtimes.clear();
    CHECK(first.times == 1);
    CHECK(first.status.code() == Code::cancelled);
    CHECK(second.times == 1);
    CHECK(second.status.code() == Code::cancelled);
    CHECK(second.at == end);
}

TEST_CASE("a loop that ignores the status of its sleeps does not hold up the end of a runtime") {
    std::atomic<int> rounds = 0;
    constexpr int enough = 1500;  // More rounds than the end of a runtime takes turns.
    {
        Runtime runtime = Runtime::create({.log_level = LogLevel::off}).value();
        struct {
            Task<void> operator()(std::atomic<int>& count) {
                while (count < enough) {
                    ++count;
                    count.notify_all();
                    (void)co_await sleep_for(10s);
                }
            }
        } tick;
        runtime.spawn(tick(rounds));
        rounds.wait(0);
    }
    CHECK(rounds == enough);
}

TEST_CASE("a sleep outside of any context fails with FAILED_PRECONDITION") {
    std::string text;
    std::thread([&] {
        struct {
            OwnedCoroutine operator()(std::string& said) {
                said = (co_await sleep_for(1s)).to_string();
            }
        } ask;
        ask(text);
    }).join();
    CHECK(text.starts_with("FAILED_PRECONDITION"));
    CHECK(text.find("Runtime::spawn") != text.npos);
}

TEST_CASE("a sleep in a forked child fails at once, since no thread turns its context there") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    int code = -1;
    runtime.executor().post([&] {
        code = end_of_child([] {
            Woken woken;
            OwnedCoroutine coroutine = sleep_owned(10s, woken);
            return woken.times == 1 && woken.status.code() == Code::failed_precondition ? 7 : 1;
        });
    });
    runtime.turn();
    CHECK(code == 7);
}

TEST_CASE("a handler's sleep ends when its call is cancelled, and so does each that follows") {
    CallOutcome outcome;
    Pauser service;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("");
    REQUIRE(server.add(service).ok());
    const Channel channel = client.connect("sim://server").value();
    const OperationId id = channel.call(pause_method, {}, {.timeout = 2h}, outcome.done());
    rig.run_for(1s);
    CHECK(service.woken.times == 0);
    SECTION("by its client") { channel.cancel_call(id); }
    SECTION("by the end of its client") { rig.runtimes.pop_back(); }
    SECTION("by the end of its server") { rig.runtimes.erase(rig.runtimes.begin()); }
    rig.run_for(30s);  // The server drops a lost client after 10 s.
    CHECK(service.woken.times == 1);
    CHECK(service.woken.status.code() == Code::cancelled);
    CHECK(service.later.times == 1);
    CHECK(service.later.status.code() == Code::cancelled);
}

TEST_CASE("a handler's sleep ends by the deadline of its call, also when the client is cut off") {
    CallOutcome outcome;
    weft::sim::Simulation simulation(1);
    const auto service = std::make_shared<Pauser>();
    simulation.add("server", [service](Runtime& runtime) {
        REQUIRE(runtime.serve(*service, "sim://server").ok());
        return nullptr;
    });
    simulation.add("client", [](Runtime&) { return nullptr; });
    const Channel channel = simulation.runtime("client")->connect("sim://server").value();
    channel.call(pause_method, {}, {.timeout = 100ms}, outcome.done());
    simulation.run_for(50ms);
    simulation.cut("client", "server");
    const TimePoint start = simulation.now();
    REQUIRE(simulation.run_until([&] { return service->later.times == 1; }, 10s));
    CHECK(service->woken.status.code() == Code::deadline_exceeded);
    CHECK(service->later.status.code() == Code::deadline_exceeded);
    CHECK(simulation.now() - start <= 60ms);
}

TEST_CASE("a sleep in a real runtime takes its time and holds no thread") {
    Runtime runtime = Runtime::create({.log_level = LogLevel::off}).value();
    struct {
        Task<Duration> operator()(int& turns_of_others) {
            const TimePoint start = now();
            auto pause = sleep_for(50ms);
            while (now() - start < 20ms) {
                (void)co_await sleep_for(0ms);
                ++turns_of_others;
            }
            (void)co_await pause;
            co_return now() - start;
        }
    } measure;
    int turns = 0;
    CHECK(runtime.block_on(measure(turns)) >= 50ms);
    CHECK(turns > 0);
}

TEST_CASE("now() is the time of the context, and of the steady clock outside of any") {
    SimRig rig;
    Runtime& runtime = rig.add("");
    TimePoint inside{};
    runtime.executor().post([&] { inside = now(); });
    runtime.turn();
    CHECK(inside == rig.clock->now());
    const auto before = std::chrono::steady_clock::now() - 1ms;
    CHECK(now() >= before);
}

}  // namespace sleep_test
