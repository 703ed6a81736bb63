// Handlers at the end of their runtime: they are notified in a turn, and the cleanup that they
// queue runs.
#include <unistd.h>

#include <array>
#include <atomic>
#include <functional>
#include <future>
#include <optional>
#include <string>
#include <system_error>
#include <thread>

#include <weft/await.h>
#include <weft/offload.h>

#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/hold_server.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace runtime_cleanup {

constexpr MethodId work_method("test.Cleanup/Work");
constexpr MethodId push_method("test.Cleanup/Push");

std::string fresh_uri() {
    static int count = 0;
    return "sm://cleanup-" + std::to_string(::getpid()) + "-" + std::to_string(++count);
}

void wait_for(const std::function<bool()>& done, Duration limit = test_timeout) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (!done() && std::chrono::steady_clock::now() < end) std::this_thread::yield();
}

struct Seen {
    std::atomic<int> waits{0}, failed{0}, ran{0}, dropped{0};
};

Task<> work_for(Call call, Channel& to, Seen& seen) {
    ++seen.waits;
    const auto got = co_await weft::call(to, HoldServer::hold, {}, {.timeout = test_timeout});
    seen.failed += !got;
    const auto cleanup = [&seen] { ++seen.ran; };
    try {
        co_await weft::offload(cleanup);
    } catch (const std::system_error&) {
        ++seen.dropped;
    }
    call.reply({});
}

struct Worker final : Service {
    Channel to;
    Seen seen;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(work_method, [this](Call call) {
            detail::run_detached(work_for(std::move(call), to, seen), [] {});
        });
    }
};

TEST_CASE("cleanup that a handler offloads runs when the end of its runtime cancels it") {
    HoldServer holder;
    Worker service;
    Runtime back = Runtime::create().value();
    REQUIRE(back.serve(holder, fresh_uri()).ok());
    std::optional<Runtime> server(
        Runtime::create({.drain_timeout = test_timeout, .offload_threads = 1}).value());
    service.to = server->connect(back.addresses().front()).value();
    REQUIRE(server->serve(service, fresh_uri()).ok());
    Runtime client = Runtime::create().value();
    const Channel channel = client.connect(server->addresses().front()).value();
    channel.call(work_method, {}, {.timeout = test_timeout}, [](const Status&, ByteView) {});
    wait_for([&] { return service.seen.waits == 1; });
    // The only thread is busy, so that the cleanup is queued for a while.
    std::promise<void> go;
    std::atomic<bool> is_busy{false};
    server->executor().offload([&is_busy, gate = go.get_future().share()] {
        is_busy = true;
        gate.wait();
    });
    wait_for([&] { return is_busy.load(); });
    std::thread end([&] { server.reset(); });
    wait_for([&] { return service.seen.failed == 1; });
    wait_for([&] { return service.seen.dropped == 1; }, 100ms);
    go.set_value();
    end.join();
    CHECK(service.seen.ran == 1);
    CHECK(service.seen.dropped == 0);
    service.to = Channel();
}

// Holds a call until the drain notice; counts the collectives that it receives.
struct Member final : Service {
    std::optional<Call> held;
    std::atomic<int> pushes{0}, drains{0}, in_a_turn{0};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(HoldServer::hold, [this](Call call) {
            held.emplace(std::move(call));
            held->on_drain([this] {
                in_a_turn += Executor::current() != nullptr;
                ++drains;
                Call ends = *std::exchange(held, std::nullopt);
                ends.reply({});
            });
        });
        registrar.add(push_method,
                      [this](Call call) {
                          ++pushes;
                          call.reply({});
                      },
                      {.collective = true});
    }
};

TEST_CASE("the on_drain notice runs in a turn when the ending runtime delivers a collective") {
    std::array<Member, 2> members;
    std::optional<Runtime> ending(Runtime::create({.drain_timeout = test_timeout}).value());
    Runtime late = Runtime::create({.manual = true}).value();
    REQUIRE(ending->serve(members[0], "tcp://127.0.0.1:0").ok());
    REQUIRE(late.serve(members[1], "tcp://127.0.0.1:0").ok());
    const GroupView view =
        GroupView::make("cleanup", 1, {{0, ending->addresses()}, {1, late.addresses()}}).value();
    REQUIRE(ending->join(view, 0).ok());
    REQUIRE(late.join(view, 1).ok());
    Runtime client = Runtime::create().value();
    const Channel channel = client.connect(ending->addresses().front()).value();
    std::promise<Status> answered;
    channel.call(HoldServer::hold, {}, {.timeout = test_timeout},
                 [&](const Status& status, ByteView) { answered.set_value(status); });
    wait_for([&] {
        bool is_held = false;
        node_of(*ending).on_context([&] { is_held = members[0].held.has_value(); });
        return is_held;
    });
    std::promise<Status> pushed;
    ending->group(view).value().collective(
        push_method, BodyWriter::of({}),
        {.timeout = test_timeout, .policy = Policy::quorum, .quorum = 1},
        [&](GroupOutcome outcome) { pushed.set_value(outcome.status); });
    REQUIRE(pushed.get_future().get().ok());
    std::atomic<bool> ended{false};
    std::thread end([&] {
        ending.reset();
        ended = true;
    });
    wait_for([&] { return members[0].drains == 1; });
    CHECK(late.turn_until([&] { return ended.load(); }, test_timeout));
    end.join();
    CHECK(members[1].pushes == 1);
    CHECK(members[0].drains == 1);
    CHECK(members[0].in_a_turn == 1);
    CHECK(answered.get_future().get().ok());
}

}  // namespace runtime_cleanup
