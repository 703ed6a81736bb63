// Work that is submitted to another context.
#include <algorithm>
#include <array>
#include <atomic>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <thread>

#include <weft/await.h>
#include <weft/combine.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "support/contexts.h"
#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/seed.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("submit: work runs on the other context, and its result and exception come back") {
    Runtime runtime = Runtime::create(with_contexts(3)).value();
    const auto visit = [&](unsigned from) -> Task<int> {
        int visited = 0;
        for (unsigned k = 0; k < 3; ++k) {
            const auto where = [&] { return runtime.here().value_or(99) * 10 + from; };
            const unsigned got = co_await runtime.context(k).submit(where);
            visited += got == k * 10 + from && runtime.here() == from;
            const auto task = [&]() -> Task<std::string> {
                (void)co_await sleep_for(100us);
                co_return "at " + std::to_string(runtime.here().value_or(99));
            };
            const std::string text = co_await runtime.context(k).submit(task);
            visited += text == "at " + std::to_string(k);
            bool has_thrown = false;
            const auto thrower = []() -> Task<void> {
                (void)co_await sleep_for(10us);
                throw std::runtime_error("there");
            };
            try {
                co_await runtime.context(k).submit(thrower);
            } catch (const std::runtime_error& error) {
                has_thrown = error.what() == std::string("there");
            }
            visited += has_thrown;
        }
        co_return visited;
    };
    for (const int visited : runtime.block_on(runtime.on_all(visit))) CHECK(visited == 9);
}

TEST_CASE("submit: contexts that submit in a circle all end") {
    constexpr unsigned contexts = 8;
    Runtime runtime = Runtime::create(with_contexts(contexts)).value();
    std::atomic<int> rounds{0};
    const auto go = [&](unsigned k) -> Task<void> {
        std::vector<Task<void>> all;
        const auto one = [&runtime, &rounds, k]() -> Task<void> {
            const auto there = [&]() -> Task<void> {
                const auto further = [&] { ++rounds; };
                co_await runtime.context((k + 2) % contexts).submit(further);
            };
            for (int i = 0; i < 50; ++i) co_await runtime.context((k + 1) % contexts).submit(there);
        };
        for (int i = 0; i < 20; ++i) all.push_back(one());
        co_await when_all(std::move(all));
    };
    runtime.block_on(runtime.on_all(go));
    CHECK(rounds == 8 * 20 * 50);
}

TEST_CASE("submit: what one context submits to another begins in the order of its submission") {
    constexpr int count = 1000;
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    std::mt19937_64 random(seed_of(0));
    std::vector<int> begun;  // Used on context 1 only.
    const auto note = [&](int i) -> Task<void> {
        begun.push_back(i);
        (void)co_await sleep_for(1us);
    };
    const auto one = [&](int i) -> Task<void> {
        const ContextRef there = runtime.context(1);
        const auto begin = [&begun, i] { begun.push_back(i); };
        const auto begin_task = [&note, i] { return note(i); };
        switch (random() % 4) {
            case 0: co_await there.submit(begin); break;
            case 1: co_await there.submit(begin_task); break;
            case 2: there.spawn(note(i)); break;
            default: there.executor().post(begin); break;
        }
    };
    const auto all = [&]() -> Task<void> {
        std::vector<Task<void>> parts;
        for (int i = 0; i < count; ++i) parts.push_back(one(i));
        co_await when_all(std::move(parts));
    };
    runtime.context(0).block_on(all());
    const auto look = [&] { return begun; };
    const auto ask = [&]() -> Task<std::vector<int>> {
        co_return co_await runtime.context(1).submit(look);
    };
    std::vector<int> expected(count);
    std::iota(expected.begin(), expected.end(), 0);
    CHECK(runtime.context(0).block_on(ask()) == expected);
}

TEST_CASE("submit: what threads of the program post to a context runs in the order of each") {
    constexpr int threads = 4, count = 1000;
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    std::array<std::vector<int>, threads> ran;  // Used on context 1 only.
    std::vector<std::thread> all;
    for (int k = 0; k < threads; ++k) {
        all.emplace_back([&, k] {
            const ContextRef to = runtime.context(1);
            const auto note = [](std::vector<int>& own, int i) -> Task<void> {
                own.push_back(i);
                co_return;
            };
            for (int i = 0; i < count; ++i) {
                if (i % 3 == 0) to.spawn(note(ran[k], i));
                else to.executor().post([&ran, k, i] { ran[k].push_back(i); });
            }
            const auto nothing = []() -> Task<void> { co_return; };
            to.block_on(nothing());
        });
    }
    for (std::thread& one : all) one.join();
    std::vector<int> expected(count);
    std::iota(expected.begin(), expected.end(), 0);
    for (const std::vector<int>& own : ran) CHECK(own == expected);
}

TEST_CASE("submit: outside of the runtime's contexts it is refused") {
    Runtime runtime = Runtime::create(with_contexts(2)).value();
    Runtime other = Runtime::create(with_contexts(1)).value();
    const auto nothing = [] {};
    const auto attempt = [&]() -> Task<void> { co_await runtime.context(1).submit(nothing); };
    CHECK_THROWS_AS(other.block_on(attempt()), std::logic_error);
    runtime.block_on(attempt());
}

namespace {

// Calls a handler that never answers, from the other context.
struct Forwarding final : EchoServer {
    Forwarding(const Here& here, Runtime& of, Channel to)
        : runtime(of), next(1 - here.index), channel(std::move(to)) {}
    Task<Status> Later(Call& call, const Request&, Reply&) override {
        (void)call;
        const auto forward = [this]() -> Task<Status> {
            co_return (co_await weft::call(channel, hold_method, {}, {.timeout = no_timeout}))
                .status();
        };
        const Status status = co_await runtime.context(next).submit(forward);
        ended = static_cast<int>(status.code());
        co_return status;
    }
    Runtime& runtime;
    const unsigned next;
    const Channel channel;
    static inline std::atomic<int> ended{0};
};

}  // namespace

TEST_CASE("submit: the deadline and the cancel of a call reach the work that it has submitted") {
    NumberedService::begun = NumberedService::cancelled = 0;
    NumberedServer last(1, fresh_uri("unix"));
    Runtime middle = Runtime::create(with_contexts(2)).value();
    const Channel further = middle.connect(last.address()).value();
    const auto make = [&](const Here& here) {
        return std::make_unique<Forwarding>(here, middle, further);
    };
    REQUIRE(middle.serve(make, fresh_uri("unix")).ok());
    Runtime client = Runtime::create(with_contexts(1)).value();
    const echo::v1::EchoClient stub(client.connect(middle.addresses().front()).value());
    const auto with_deadline = [&]() -> Task<Code> {
        const echo::v1::EchoRequest request;
        co_return (co_await stub.Later(request, {.timeout = 50ms})).status().code();
    };
    CHECK(client.block_on(with_deadline()) == Code::deadline_exceeded);
    CHECK(wait_for([&] { return NumberedService::cancelled == 1; }));
    // By the deadline, or by the client's cancel if that comes first.
    CHECK(wait_for([&] { return Forwarding::ended != 0; }));
    const auto first = static_cast<Code>(Forwarding::ended.exchange(0));
    CHECK((first == Code::deadline_exceeded || first == Code::cancelled));
    // The client is gone: its calls are cancelled.
    {
        Runtime second = Runtime::create(with_contexts(1)).value();
        const Channel channel = second.connect(middle.addresses().front()).value();
        const echo::v1::EchoClient other(channel);
        second.spawn([&]() -> Task<void> {
            const echo::v1::EchoRequest request;
            (void)co_await other.Later(request, {.timeout = no_timeout});
        });
        CHECK(wait_for([&] { return NumberedService::begun == 2; }));
    }
    CHECK(wait_for([&] { return NumberedService::cancelled == 2; }));
    CHECK(wait_for([&] { return Forwarding::ended == static_cast<int>(Code::cancelled); }));
}

namespace {

// Submits work after its call has been cancelled.
struct Late final : EchoServer {
    explicit Late(Runtime& of) : runtime(of) {}
    Task<Status> Later(Call&, const Request&, Reply&) override {
        const Status cancelled = co_await sleep_for(1h);
        const auto sleep = []() -> Task<Status> { co_return co_await sleep_for(1h); };
        const Status there = co_await runtime.context(1).submit(sleep);
        ended = !cancelled.ok() && !there.ok();
        co_return there;
    }
    Runtime& runtime;
    static inline std::atomic<bool> ended{false};
};

}  // namespace

TEST_CASE("submit: the work of a call that was cancelled before begins nothing more") {
    Runtime server = Runtime::create(with_contexts(2)).value();
    const auto make = [&](const Here&) { return std::make_unique<Late>(server); };
    REQUIRE(server.serve(make, fresh_uri("unix")).ok());
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(server.addresses().front()).value().on(0);
    const echo::v1::EchoClient stub(channel);
    const auto with_deadline = [&]() -> Task<Code> {
        const echo::v1::EchoRequest request;
        co_return (co_await stub.Later(request, {.timeout = 50ms})).status().code();
    };
    CHECK(client.block_on(with_deadline()) == Code::deadline_exceeded);
    CHECK(wait_for([] { return Late::ended.load(); }));
}
