// The end of a runtime with offloaded work that is running, and with work that is queued.
#include <weft/offload.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <future>
#include <memory>
#include <optional>
#include <system_error>
#include <thread>

#include "api/runtime_impl.h"
#include "support/child.h"
#include "support/fresh_uri.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

// Work that blocks until `go`; `ran` counts the started pieces, `dropped` those that never start.
struct Work {
    std::promise<void> go;
    std::shared_future<void> gate = go.get_future().share();
    std::atomic<int> ran{0}, dropped{0};
};

Task<> work_for(Call call, Work& work) {
    const auto blocks = [&work] {
        ++work.ran;
        work.gate.wait();
    };
    try {
        co_await weft::offload(blocks);
    } catch (const std::system_error& error) {
        work.dropped += error.code() == std::errc::operation_canceled;
    }
    call.reply({});
}

struct Worker final : Service {
    Work work;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            detail::run_detached(work_for(std::move(call), work), [] {});
        });
    }
};

int executing(Runtime& server) {
    int count = 0;
    node_of(server).on_context([&] { count = int(node_of(server).server.executing()); });
    return count;
}

}  // namespace

TEST_CASE("queued offloaded work of calls is dropped when the runtime ends") {
    Worker service;
    auto server = std::make_unique<Runtime>(
        Runtime::create(
            {.drain_timeout = test_timeout, .offload_threads = 1, .log_level = LogLevel::off})
            .value());
    REQUIRE(server->serve(service, fresh_uri("sm")).ok());
    Runtime client = Runtime::create().value();
    Channel channel = client.connect(server->addresses().front()).value();
    std::atomic<int> completions{0};
    constexpr int calls = 20;
    for (int i = 0; i < calls; ++i) {
        channel.call(echo_method, {}, {.timeout = test_timeout},
                     [&](const Status&, ByteView) { ++completions; });
    }
    const auto begin = std::chrono::steady_clock::now();
    while (executing(*server) < calls || service.work.ran < 1) {
        REQUIRE(std::chrono::steady_clock::now() - begin < test_timeout);
    }
    std::thread ends([&] { server.reset(); });
    CHECK(wait_for([&] { return service.work.dropped == calls - 1; }));
    service.work.go.set_value();
    ends.join();
    CHECK(service.work.dropped == calls - 1);
    CHECK(service.work.ran == 1);
    while (completions < calls) REQUIRE(std::chrono::steady_clock::now() - begin < test_timeout);
}

namespace {

// Its handler does not catch the exception of a drop.
struct Trusting final : Service {
    std::promise<void> go;
    std::shared_future<void> gate = go.get_future().share();
    std::atomic<int> ran{0};
    Task<> serve(Call call) {
        const auto blocks = [this] {
            ++ran;
            gate.wait();
        };
        co_await weft::offload(blocks);
        call.reply({});
    }
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method,
                      [this](Call call) { detail::run_detached(serve(std::move(call)), [] {}); });
    }
};

}  // namespace

TEST_CASE("the exception of dropped offloaded work is not logged as an error") {
    Trusting service;
    std::atomic<int> dropped{0}, errors{0};
    const auto sink = [&](LogLevel level, std::string_view line) {
        if (line.find("offloaded work was dropped") != std::string_view::npos) ++dropped;
        if (level == LogLevel::error) ++errors;
    };
    auto server = std::make_unique<Runtime>(Runtime::create({.drain_timeout = test_timeout,
                                                             .offload_threads = 1,
                                                             .log_level = LogLevel::info,
                                                             .log_sink = sink})
                                                .value());
    REQUIRE(server->serve(service, fresh_uri("sm")).ok());
    Runtime client = Runtime::create().value();
    const Channel channel = client.connect(server->addresses().front()).value();
    std::atomic<int> completions{0};
    constexpr int calls = 3;
    for (int i = 0; i < calls; ++i) {
        channel.call(echo_method, {}, {.timeout = test_timeout},
                     [&](const Status&, ByteView) { ++completions; });
    }
    CHECK(wait_for([&] { return executing(*server) == calls && service.ran == 1; }));
    std::thread ends([&] { server.reset(); });
    CHECK(wait_for([&] { return dropped == calls - 1; }));
    service.go.set_value();
    ends.join();
    CHECK(dropped == calls - 1);
    CHECK(errors == 0);
    CHECK(wait_for([&] { return completions == calls; }));
    CHECK(completions == calls);
}

TEST_CASE("drain_timeout bounds the wait for queued offloaded work") {
    Work work;
    auto runtime = std::make_unique<Runtime>(
        Runtime::create({.drain_timeout = 100ms, .offload_threads = 1, .log_level = LogLevel::off})
            .value());
    struct Counted {
        explicit Counted(Work& of) : work(of) {}
        ~Counted() { work.dropped += !has_run; }
        Work& work;
        bool has_run = false;
    };
    constexpr int pieces = 10;
    for (int i = 0; i < pieces; ++i) {
        runtime->executor().offload([&work, owned = std::make_unique<Counted>(work)] {
            owned->has_run = true;
            ++work.ran;
            work.gate.wait();
        });
    }
    CHECK(wait_for([&] { return work.ran == 1; }));
    std::thread ends([&] { runtime.reset(); });
    CHECK(wait_for([&] { return work.dropped == pieces - 1; }));
    work.go.set_value();
    ends.join();
    CHECK(work.dropped == pieces - 1);
    CHECK(work.ran == 1);
}

TEST_CASE("drain_timeout bounds the turns for work that posts itself repeatedly") {
    std::atomic<int> rounds{0};
    static constexpr auto pause = 2ms;
    auto runtime = std::make_unique<Runtime>(
        Runtime::create({.drain_timeout = 100ms, .log_level = LogLevel::off}).value());
    struct Goes {
        Executor& executor;
        std::atomic<int>& rounds;
        void operator()() const {
            const auto end = std::chrono::steady_clock::now() + pause;
            while (std::chrono::steady_clock::now() < end) {
            }
            ++rounds;
            executor.post(*this);
        }
    };
    runtime->executor().post(Goes{runtime->executor(), rounds});
    CHECK(wait_for([&] { return rounds > 0; }));
    const int before = rounds;
    runtime.reset();
    // One second of turns, of which the last one runs at most 256, and a thousand after that.
    CHECK(rounds - before <= 1s / pause + 256 + 1100);
}

Task<> offload_until(std::shared_future<void> gate) {
    const auto waits = [gate] { gate.wait(); };
    co_await offload(waits);
}

Task<> await_stored(std::optional<Task<>>& kept) { co_await *kept; }

TEST_CASE("a forked child may destroy a task that waits for its parent's offloaded work") {
    const bool by_exit = GENERATE(false, true);
    CAPTURE(by_exit);
    Runtime runtime = Runtime::create().value();
    std::promise<void> gate, begun;
    std::optional<Task<>> kept;
    std::promise<void> over;
    runtime.executor().post([&] {
        kept = offload_until(gate.get_future().share());
        detail::run_detached(await_stored(kept), [&] { over.set_value(); });
        begun.set_value();
    });
    begun.get_future().wait();
    CHECK(end_of_child([&] {
              static std::optional<Task<>> destroyed_by_exit;
              if (!by_exit) return kept.reset(), 7;
              destroyed_by_exit = std::move(kept);
              std::exit(7);
          }) == 7);
    gate.set_value();
    over.get_future().wait();
}
