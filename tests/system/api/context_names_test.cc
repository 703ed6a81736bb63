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
