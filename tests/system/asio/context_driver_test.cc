// AsioDriver: contexts of a runtime inside io_contexts of the program.
#include <atomic>
#include <future>
#include <memory>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/sleep.h>

#include "support/asio_pair.h"
#include "support/child.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/turning_threads.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

// A context of a runtime in an io_context with a thread of its own, which has begun to turn it.
class DrivenContext {
  public:
    explicit DrivenContext(const ContextRef& context)
        : driver_(std::in_place, io.get_executor(), context), thread_([this] { io.run(); }) {
        std::promise<void> turned;
        context.executor().post([&] { turned.set_value(); });
        turned.get_future().wait();
    }
    DrivenContext(const DrivenContext&) = delete;
    DrivenContext& operator=(const DrivenContext&) = delete;
    ~DrivenContext() { stop(); }

    std::thread::id id() const { return thread_.get_id(); }
    // The io_context runs out of work when its operations have completed.
    void stop() {
        if (!thread_.joinable()) return;
        asio::post(io, [this] {
            driver_.reset();
            io.stop();
        });
        thread_.join();
    }

    asio::io_context io{1};

  private:
    std::optional<AsioDriver> driver_;
    std::thread thread_;
};

using DrivenContexts = std::vector<std::unique_ptr<DrivenContext>>;

DrivenContexts drive_all(const Runtime& runtime) {
    DrivenContexts all;
    for (unsigned k = 0; k < runtime.contexts(); ++k)
        all.push_back(std::make_unique<DrivenContext>(runtime.context(k)));
    return all;
}

unsigned number_in(const Result<std::vector<std::byte>>& reply) {
    return reply ? static_cast<unsigned>(std::stoul(std::string(as_text(*reply)))) : 99;
}

asio::awaitable<void> ask(Channel channel, unsigned server_context, int calls,
                          std::atomic<int>& right) {
    const auto home = std::this_thread::get_id();
    asio::steady_timer timer(co_await asio::this_coro::executor);
    for (int i = 0; i < calls; ++i) {
        const Result<std::vector<std::byte>> reply =
            co_await async_call(channel.on(server_context), number_method, {},
                                {.timeout = test_timeout}, asio::use_awaitable);
        right += number_in(reply) == server_context && std::this_thread::get_id() == home;
        timer.expires_after(10us);
        (void)co_await timer.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

}  // namespace

TEST_CASE("asio contexts: each serves and calls in an io_context with a thread of its own") {
    constexpr unsigned contexts = 3;
    constexpr int calls = 100;
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Runtime server = Runtime::create(by_hand(contexts)).value();
        REQUIRE(server.serve(numbered_services(), fresh_uri(scheme)).ok());
        Runtime client = Runtime::create(by_hand(contexts)).value();
        const Channel channel = client.connect(server.addresses().front()).value();
        DrivenContexts servers = drive_all(server), clients = drive_all(client);
        std::atomic<int> right{0}, ended{0};
        for (unsigned k = 0; k < contexts; ++k) {
            asio::co_spawn(clients[k]->io, ask(channel, k, calls, right),
                           [&](const std::exception_ptr& thrown) { ended += !thrown; });
        }
        CHECK(wait_for([&] { return ended == int(contexts); }));
        CHECK(right == int(contexts) * calls);
    }
}

TEST_CASE("asio contexts: posts and submissions reach each on its thread") {
    constexpr unsigned contexts = 4;
    Runtime runtime = Runtime::create(by_hand(contexts)).value();
    DrivenContexts driven = drive_all(runtime);
    std::atomic<int> right{0};
    const auto visit = [&](unsigned k) -> Task<int> {
        int visited = std::this_thread::get_id() == driven[k]->id();
        for (unsigned next = 0; next < contexts; ++next) {
            const auto there = [&] { return std::this_thread::get_id() == driven[next]->id(); };
            visited += co_await runtime.context(next).submit(there);
            visited += std::this_thread::get_id() == driven[k]->id();
        }
        co_return visited;
    };
    for (const int visited : runtime.block_on(runtime.on_all(visit)))
        CHECK(visited == 1 + 2 * int(contexts));
    for (unsigned k = 0; k < contexts; ++k) {
        // Out of an io_context's handler, between the turns of its context.
        asio::post(driven[k]->io, [&, k] {
            const unsigned next = (k + 1) % contexts;
            runtime.context(next).executor().post(
                [&, next] { right += std::this_thread::get_id() == driven[next]->id(); });
        });
        CHECK(runtime.context(k).block_on(visit(k)) == 1 + 2 * int(contexts));
    }
    CHECK(wait_for([&] { return right == int(contexts); }));
}

TEST_CASE("asio contexts: one io_context turns all of them, by one driver or by one for each") {
    const bool one_driver = GENERATE(true, false);
    constexpr unsigned contexts = 3;
    asio::io_context io{1};
    Runtime runtime = Runtime::create(by_hand(contexts)).value();
    REQUIRE(runtime.serve(numbered_services(), fresh_uri("tcp")).ok());
    const Channel channel = runtime.connect(runtime.addresses().front()).value();
    std::vector<std::unique_ptr<AsioDriver>> drivers;
    if (one_driver) {
        drivers.push_back(std::make_unique<AsioDriver>(io.get_executor(), runtime));
    } else {
        for (unsigned k = 0; k < contexts; ++k)
            drivers.push_back(std::make_unique<AsioDriver>(io.get_executor(), runtime.context(k)));
    }
    std::atomic<int> right{0};
    unsigned ended = 0;
    bool late = false;
    for (unsigned k = 0; k < contexts; ++k)
        asio::co_spawn(io, ask(channel, k, 100, right),
                       [&](const std::exception_ptr&) { ++ended; });
    const auto run_until = [&](const auto& done) {
        int handlers = 0;
        asio::steady_timer patient(io, test_timeout);
        patient.async_wait([&](const auto& error) { late = !error; });
        while (!done() && !late) handlers += static_cast<int>(io.run_one());
        patient.cancel();
        io.poll();
        return handlers;
    };
    run_until([&] { return ended == contexts; });
    CHECK(right == int(contexts) * 100);
    CHECK_FALSE(late);
    // Idle, they sleep with their io_context: the rest are heartbeats.
    bool over = false;
    asio::steady_timer timer(io, 100ms);
    timer.async_wait([&](const auto&) { over = true; });
    while (io.poll() > 0) {
    }
    CHECK(run_until([&] { return over; }) < 200);
}

// Each wait by hand consumes what the driver of the thread sleeps on.
TEST_CASE("asio contexts: drivers wake after handlers have waited for contexts by hand") {
    constexpr unsigned contexts = 3;
    Runtime runtime = Runtime::create(by_hand(contexts)).value();
    const auto where = [&]() -> Task<unsigned> {
        (void)co_await sleep_for(2ms);
        co_return runtime.here().value_or(99);
    };
    std::atomic<int> right{0};
    const auto wait_for_all = [&] {
        for (unsigned k = 0; k < contexts; ++k) right += runtime.context(k).block_on(where()) == k;
        return true;
    };
    const auto check_awake = [&] {
        for (unsigned k = 0; k < contexts; ++k) {
            const auto ran = std::make_shared<std::promise<void>>();
            runtime.context(k).executor().post([ran] { ran->set_value(); });
            CHECK(ran->get_future().wait_for(test_timeout) == std::future_status::ready);
        }
    };
    SECTION("each on its thread, which waits for those of the others") {
        DrivenContexts driven = drive_all(runtime);
        std::vector<std::future<bool>> waits;
        for (auto& one : driven)
            waits.push_back(asio::post(one->io, std::packaged_task<bool()>(wait_for_all)));
        for (auto& one : waits) CHECK(one.get());
        CHECK(right == int(contexts * contexts));
        check_awake();
    }
    SECTION("all on one thread") {
        asio::io_context io{1};
        std::optional<AsioDriver> driver(std::in_place, io.get_executor(), runtime);
        std::thread thread([&] { io.run(); });
        CHECK(asio::post(io, std::packaged_task<bool()>(wait_for_all)).get());
        CHECK(right == int(contexts));
        check_awake();
        asio::post(io, [&] { driver.reset(); });
        thread.join();
    }
}

TEST_CASE("asio contexts: exit() beside the threads of drivers ends with its code") {
    if (!can_start_threads_in_child) return;
    for (const unsigned contexts : {1u, 2u}) {
        check_mistake(
            "a static runtime",
            [contexts] {
                static std::optional<Runtime> runtime(Runtime::create(by_hand(contexts)).value());
                const ContextRef last = runtime->context(contexts - 1);
                auto* const io = new asio::io_context(1);  // Both are never destroyed.
                new AsioDriver(io->get_executor(), last);
                std::promise<void> turned;
                last.executor().post([&] { turned.set_value(); });
                std::thread([io] { io->run(); }).detach();
                turned.get_future().wait();
                std::exit(7);
                return 0;
            },
            7, {"exit()", "join that thread first"});
    }
}

TEST_CASE("asio contexts: the end of the runtime cancels what each has in flight") {
    NumberedServer server(2, fresh_uri("sm"));
    NumberedService::begun = 0;
    std::optional<Runtime> client = Runtime::create(by_hand(3)).value();
    const Channel channel = client->connect(server.address()).value();
    DrivenContexts driven = drive_all(*client);
    std::atomic<int> cancelled{0}, there{0};
    for (auto& one : driven) {
        asio::post(one->io, [&, &io = one->io] {
            async_call(channel, hold_method, {}, {.timeout = no_timeout},
                       asio::bind_executor(io, [&](const Result<std::vector<std::byte>>& reply) {
                           cancelled += reply.status().code() == Code::cancelled;
                           there += io.get_executor().running_in_this_thread();
                       }));
        });
    }
    REQUIRE(wait_for([&] { return NumberedService::begun == 3; }));
    for (auto& one : driven) one->stop();
    client.reset();
    for (auto& one : driven) {
        one->io.restart();
        one->io.run();
    }
    CHECK(cancelled == 3);
    CHECK(there == 3);
}

TEST_CASE("asio contexts: a context without a driver stops neither the others nor the end") {
    std::optional<Runtime> server = Runtime::create(by_hand(3)).value();
    REQUIRE(server->serve(numbered_services(), fresh_uri("tcp")).ok());
    {
        const DrivenContext first(server->context(0)), last(server->context(2));
        for (int i = 0; i < 6; ++i) {
            Runtime client = Runtime::create(with_contexts(1)).value();
            const Channel channel = client.connect(server->addresses().front()).value();
            CHECK(ask_context(client, channel) % 2 == 0);
        }
    }
    server.reset();
}

TEST_CASE("asio contexts: a runtime may move while drivers turn its contexts") {
    Runtime runtime = Runtime::create(by_hand(2)).value();
    DrivenContexts driven = drive_all(runtime);
    Runtime moved = std::move(runtime);
    const auto where = [&](unsigned k) { return moved.here() == k; };
    for (const bool is_right : moved.block_on(moved.on_all(where))) CHECK(is_right);
    driven.clear();
}

TEST_CASE("asio contexts: drivers that are misused abort the program with a message") {
    const auto drive = [](asio::io_context& io, const auto& turned) {
        return std::make_unique<AsioDriver>(io.get_executor(), turned);
    };
    check({"a second driver of a context",
           [&] {
               asio::io_context io{1};
               const Runtime runtime = Runtime::create(by_hand(2)).value();
               const auto first = drive(io, runtime.context(1));
               const auto other = drive(io, runtime.context(0));
               const auto second = drive(io, runtime.context(1));
           },
           {"weft::AsioDriver", "stop that one first"}});
    check({"a driver of a context, and one of all",
           [&] {
               asio::io_context io{1};
               Runtime runtime = Runtime::create(by_hand(2)).value();
               const auto first = drive(io, runtime.context(1));
               const AsioDriver second(io.get_executor(), runtime);
           },
           {"weft::AsioDriver", "stop that one first"}});
    check({"the runtime ends first",
           [&] {
               asio::io_context io{1};
               std::optional<Runtime> runtime = Runtime::create(by_hand(2)).value();
               const auto driver = drive(io, runtime->context(1));
               runtime.reset();
           },
           {"Runtime::~Runtime()", "weft::AsioDriver", "stop or destroy the driver first"}});
    check({"a runtime with threads",
           [&] {
               asio::io_context io{1};
               const Runtime runtime = Runtime::create(with_contexts(2)).value();
               const auto driver = drive(io, runtime.context(1));
           },
           {"ContextRef::wait_fd()", "RuntimeOptions::manual"}});
}
