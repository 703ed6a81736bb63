// The numbers of contexts in the names of their threads, and in messages about them.
#include <pthread.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/sleep.h>

#include "api/runtime_impl.h"
#include "na/tcp/tcp.h"
#include "support/catch.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/wait_for.h"

namespace context_names_test {
namespace {

using namespace weft;
using namespace weft::test;

std::string own_thread_name() {
    char name[16] = "";
    (void)::pthread_getname_np(::pthread_self(), name, sizeof name);
    return name;
}

std::vector<std::string> thread_names(unsigned contexts) {
    Runtime runtime = Runtime::create(with_contexts(contexts)).value();
    const auto ask = [](unsigned) { return own_thread_name(); };
    return runtime.block_on(runtime.on_all(ask));
}

// The log of a runtime.
struct NumberedLog {
    std::mutex mutex;
    std::string text;

    LogSink sink() {
        return [this](LogLevel, std::string_view line) {
            const std::lock_guard lock(mutex);
            text += std::string(line) + "\n";
        };
    }
    bool has(const std::string& part) {
        const std::lock_guard lock(mutex);
        return text.find(part) != std::string::npos;
    }
};

RuntimeOptions logged(unsigned contexts, NumberedLog& log) {
    RuntimeOptions options = with_contexts(contexts);
    options.log_level = LogLevel::warning;
    options.log_sink = log.sink();
    return options;
}

constexpr MethodId blocks_method("test.ContextNames/Block");

// Blocks its context until `released`, or for a time that is logged.
struct Blocking final : Service {
    explicit Blocking(std::shared_future<void> gate) : released(std::move(gate)) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(blocks_method, [this](Call call) {
            (void)released.wait_for(1200ms);
            call.reply({});
        });
    }
    const std::shared_future<void> released;
};

}  // namespace

TEST_CASE("contexts: their threads have names with their numbers, one alone has none") {
    CHECK(thread_names(1) == std::vector<std::string>{"weft-context"});
    const std::vector<std::string> names = thread_names(12);
    REQUIRE(names.size() == 12);
    for (std::size_t k = 0; k < names.size(); ++k)
        CHECK(names[k] == "weft-context-" + std::to_string(k));
}

TEST_CASE("contexts: the log names the context that a handler has blocked") {
    for (const unsigned contexts : {1u, 3u}) {
        CAPTURE(contexts);
        NumberedLog log;
        std::promise<void> never_set;
        const std::shared_future<void> gate = never_set.get_future().share();
        Runtime server = Runtime::create(logged(contexts, log)).value();
        const auto make = [&](const Here&) { return std::make_unique<Blocking>(gate); };
        const std::string uri = fresh_uri("sm");
        REQUIRE(server.serve(make, uri).ok());
        Runtime client = Runtime::create(with_contexts(1)).value();
        const Channel channel = client.connect(uri).value();
        const auto block = [&]() -> Task<Code> {
            const auto reply = co_await call(channel.on(contexts - 1), blocks_method, {},
                                             {.timeout = test_timeout});
            co_return reply.status().code();
        };
        CHECK(client.block_on(block()) == Code::ok);
        const std::string name = contexts == 1 ? "the runtime" : "context 2";
        CHECK(
            wait_for([&] { return log.has("the thread of " + name + " was blocked or stopped"); }));
    }
}

// Two contexts that wait for each other are seen by a thread that waits for one of them.
TEST_CASE("contexts: a thread that waits for one logs that another one is blocked") {
    NumberedLog log;
    std::promise<void> release;
    Runtime runtime = Runtime::create(logged(2, log)).value();
    runtime.context(1).executor().post([&] { release.get_future().wait(); });
    const auto is_named = [&] { return log.has("the thread of context 1 has been blocked"); };
    CHECK(runtime.block_on(until(is_named)));
    release.set_value();
}

namespace {

// Sockets without a door, as of a transport that can't pass a connection on.
struct DoorlessProvider final : na::Provider {
    std::string_view scheme() const override { return inner->scheme(); }
    na::Diagnosis probe() override { return inner->probe(); }
    Result<std::unique_ptr<na::Endpoint>> open(const na::Address* listen, na::EndpointParts parts,
                                               TimePoint now) override {
        return inner->open(listen, std::move(parts), now);
    }
    const std::unique_ptr<na::Provider> inner = na::make_unix_provider();
};

}  // namespace

TEST_CASE("contexts: the log says that context 0 serves an address alone") {
    for (const unsigned contexts : {1u, 2u}) {
        CAPTURE(contexts);
        NumberedLog log;
        RuntimeOptions options = logged(contexts, log);
        options.log_level = LogLevel::info;
        api::RuntimeParts parts = api::production_parts();
        parts.providers = std::make_shared<na::Registry>();
        parts.providers->add(std::make_unique<DoorlessProvider>());
        Runtime server =
            Runtime::from_impl(api::RuntimeImpl::make(options, std::move(parts)).value()).value();
        REQUIRE(server.serve(numbered_services(), fresh_uri("unix")).ok());
        const std::string uri = server.addresses().front();
        CHECK(wait_for(
            [&] { return log.has("context 0 serves " + uri + " alone") || contexts == 1; }));
        CHECK_FALSE((contexts == 1 && log.has(" alone")));
    }
    NumberedLog log;
    RuntimeOptions options = logged(2, log);
    options.log_level = LogLevel::info;
    Runtime steered = Runtime::create(options).value();
    REQUIRE(steered.serve(numbered_services(), fresh_uri("unix")).ok());
    CHECK_FALSE(log.has(" alone"));
}

TEST_CASE("contexts: a drain and the end name the context that is still blocked") {
    NumberedLog log;
    RuntimeOptions options = logged(3, log);
    options.drain_timeout = 10ms;
    std::optional<Runtime> server = Runtime::create(options).value();
    std::promise<void> entered, release;
    server->context(0).executor().post([&] {
        entered.set_value();
        release.get_future().wait();
    });
    entered.get_future().wait();
    server->stop();
    const Status drained = server->run();
    CHECK(drained.code() == Code::deadline_exceeded);
    CHECK(drained.text().find("the thread of context 0 was still blocked") != std::string::npos);
    auto ending = std::async(std::launch::async, [&] { server.reset(); });
    CHECK(wait_for([&] { return log.has("waits for its thread of context 0, which"); }));
    release.set_value();
    ending.get();
}

TEST_CASE("contexts: a drain names the manual context that no thread turns") {
    RuntimeOptions options = with_contexts(2);
    options.manual = true;
    options.drain_timeout = 10ms;
    Runtime server = Runtime::create(options).value();
    server.context(1).turn();
    std::thread([&] { server.context(0).turn(); }).join();
    server.stop();
    const Status drained = server.run();
    CHECK(drained.code() == Code::deadline_exceeded);
    CHECK(drained.text().find("no thread turned context 0 (") != std::string::npos);
}

}  // namespace context_names_test
