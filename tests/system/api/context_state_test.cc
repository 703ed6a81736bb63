// The state text and the load figures of a runtime with several contexts.
#include <algorithm>
#include <atomic>
#include <thread>

#include <weft/await.h>
#include <weft/combine.h>

#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId work_method("test.Load/Work");

// Works for a while in each call.
struct WorkingService final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(work_method, [](Call call) {
            const auto end = std::chrono::steady_clock::now() + 1ms;
            while (std::chrono::steady_clock::now() < end) {
            }
            call.reply({});
        });
    }
};

bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Has four calls in flight until it is stopped.
struct BusyCaller {
    BusyCaller(const std::string& uri, unsigned context, const MethodId& method)
        : channel(client.connect(uri).value().on(context)), thread([this, &method] {
              std::vector<Task<void>> loops;
              for (int i = 0; i < 4; ++i) loops.push_back(repeat(method));
              client.block_on(when_all(std::move(loops)));
          }) {}
    ~BusyCaller() {
        is_over = true;
        thread.join();
    }
    Task<void> repeat(const MethodId& method) {
        while (!is_over) {
            const auto reply = co_await call(channel, method, {});
            if (!reply) ++failed;
        }
    }
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel;
    std::atomic<bool> is_over{false};
    std::atomic<int> failed{0};
    std::thread thread;
};

}  // namespace

TEST_CASE("contexts: loads tell the calls, the connections and the busy share of each") {
    NumberedServer server(3, fresh_uri("sm"));
    for (const ContextLoad& load : server.runtime.loads()) {
        CHECK(load.connections == 0);
        CHECK(load.served == 0);
    }
    {
        BusyCaller caller(server.address(), 1, number_method);
        REQUIRE(wait_for([&] { return server.runtime.loads()[1].served > 0; }));
        const std::vector<ContextLoad> loads = server.runtime.loads();
        REQUIRE(loads.size() == 3);
        CHECK(loads[1].connections == 1);
        CHECK(loads[1].busy > 0);
        CHECK(loads[1].busy <= 1);
        for (const unsigned idle : {0u, 2u}) {
            CHECK(loads[idle].served == 0);
            CHECK(loads[idle].made == 0);
        }
        // A call of the program's thread is made on context 0.
        REQUIRE(wait_for([&] { return caller.client.loads()[0].made > 0; }));
        CHECK(caller.client.loads()[0].served == 0);
        CHECK(caller.client.loads()[0].connections == 1);
        CHECK(caller.failed == 0);
    }
    REQUIRE(wait_for([&] {
        const std::vector<ContextLoad> loads = server.runtime.loads();
        return loads[1].served == 0 && loads[1].connections == 0;
    }));
}

TEST_CASE("contexts: the state has the sums of all first, then each") {
    NumberedServer server(3, fresh_uri("sm"));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel any = client.connect(server.address()).value();
    for (unsigned k = 0; k < 3; ++k) {
        const Channel channel = any.on(k);
        for (int i = 0; i < 2; ++i) CHECK(ask_context(client, channel) == k);
    }
    const std::string state = server.runtime.state();
    INFO(state);
    CHECK(state.starts_with("3 contexts: "));
    CHECK(has(state, "sums of 3 of 3 contexts:\npeers: 3 peers, 3 connected\n"));
    CHECK(has(state, "handlers: 3 sessions\n"));
    CHECK(has(state, "transfers: none\n"));
    for (unsigned k = 0; k < 3; ++k) {
        const std::string name = "context " + std::to_string(k) + " of 3:";
        CHECK(has(state, "  " + name + " busy "));
        CHECK(has(state, name + "\nendpoints: sm://"));
    }
    CHECK_FALSE(has(state, "fills context"));
    const std::string calls = client.state();
    CHECK(calls.starts_with("endpoints:"));  // With one context as ever.
    CHECK(has(calls, "OK 6"));
}

TEST_CASE("contexts: the state names those that do not answer, and waits a second for all") {
    NumberedServer server(4, fresh_uri("sm"));
    std::atomic<int> blocked{0};
    std::atomic<bool> ends{false};
    for (const unsigned k : {1u, 2u}) {
        server.runtime.context(k).executor().post([&] {
            ++blocked;
            ends.wait(false);
        });
    }
    REQUIRE(wait_for([&] { return blocked == 2; }));
    const auto before = std::chrono::steady_clock::now();
    const std::string state = server.runtime.state();
    const auto took = std::chrono::steady_clock::now() - before;
    CHECK(took >= 1s);
    CHECK(took < 1s + promised(900ms));
    INFO(state);
    CHECK(has(state, "sums of 2 of 4 contexts:"));
    for (unsigned k = 0; k < 4; ++k) {
        const std::size_t at = state.find("  context " + std::to_string(k) + " of 4: busy ");
        REQUIRE(at != std::string::npos);
        const std::string line = state.substr(at, state.find('\n', at) - at);
        CHECK(has(line, "does not turn") == (k == 1 || k == 2));
    }
    REQUIRE(wait_for([&] { return server.runtime.loads()[2].is_blocked; }));
    CHECK(server.runtime.loads()[2].busy == 1);
    CHECK_FALSE(server.runtime.loads()[0].is_blocked);
    CHECK(has(server.runtime.state(), "the busiest first:\n  context 1 of 4: busy 1000 of 1000"));
    ends = true;
    ends.notify_all();
    REQUIRE(wait_for([&] { return has(server.runtime.state(), "sums of 4 of 4 contexts:"); }));
}

TEST_CASE("contexts: the state names the manual ones that no thread has turned") {
    RuntimeOptions options = with_contexts(3);
    options.manual = true;
    Runtime runtime = Runtime::create(options).value();
    runtime.context(1).turn();
    const std::string state = runtime.state();
    INFO(state);
    for (unsigned k = 0; k < 3; ++k) {
        const std::size_t at = state.find("  context " + std::to_string(k) + " of 3: busy ");
        REQUIRE(at != std::string::npos);
        const std::string line = state.substr(at, state.find('\n', at) - at);
        CHECK(has(line, "; no thread has turned it (") == (k != 1));
    }
    for (unsigned k = 0; k < 3; ++k) runtime.context(k).turn();
    CHECK_FALSE(has(runtime.state(), "no thread has turned"));
}

TEST_CASE("contexts: the state in a turn has the own context's part") {
    NumberedServer server(2, fresh_uri("sm"));
    std::string state;
    std::atomic<bool> is_done{false};
    server.runtime.context(1).executor().post([&] {
        state = server.runtime.state();
        is_done = true;
        is_done.notify_one();
    });
    is_done.wait(false);
    INFO(state);
    CHECK(has(state, "a turn of context 1 does not wait for the others"));
    CHECK(has(state, "context 1 of 2:\nendpoints:"));
    CHECK_FALSE(has(state, "context 0 of 2:\nendpoints:"));
    CHECK_FALSE(has(state, "does not turn"));
}

TEST_CASE("contexts: the state advises to spread a connection that fills a context") {
    WorkingService service;
    Runtime server = Runtime::create(with_contexts(2)).value();
    REQUIRE(server.serve(shared(service), fresh_uri("sm")).ok());
    const BusyCaller caller(server.addresses().front(), 1, work_method);
    std::string state;
    REQUIRE(wait_for([&] {
        state = server.state();
        return has(state, "one connection fills context 1: ");
    }));
    INFO(state);
    CHECK(has(state, "makes 100 of 100 of its calls; spread them (ConnectOptions::spread)"));
    CHECK_FALSE(has(state, "one connection fills context 0"));
}

TEST_CASE("contexts: the state of many has at most 32 lines of each kind") {
    RuntimeOptions options = with_contexts(40);
    options.manual = true;
    Runtime runtime = Runtime::create(options).value();
    REQUIRE(runtime.serve(numbered_services(), fresh_uri("sm")).ok());
    const std::string state = runtime.state();
    INFO(state);
    CHECK(has(state, "sums of 40 of 40 contexts:"));
    CHECK(has(state, "  and 8 more\n"));
    CHECK(std::count(state.begin(), state.end(), '\n') < 120);
    std::size_t detailed = 0;
    for (std::size_t at = 0; (at = state.find("\nendpoints:", at)) != std::string::npos; ++at)
        ++detailed;
    CHECK(detailed == 4);
    for (const ContextLoad& load : runtime.loads()) CHECK(load.busy == 0);
}
