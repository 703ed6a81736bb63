// Connections reach a server while the contexts that accept them are blocked, or are turned by no
// thread.
#include <atomic>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <vector>

#include <weft/await.h>

#include "api/runtime_impl.h"
#include "na/registry.h"
#include "na/tcp/tcp.h"
#include "support/contexts.h"
#include "support/fresh_uri.h"
#include "support/numbered_server.h"
#include "support/test_timeout.h"
#include "support/turning_threads.h"
#include "support/wait_for.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId block_method("test.Contexts/Block");

// Handlers that block their threads until `ends`.
struct Blocking {
    std::atomic<int> blocked{0};
    std::atomic<bool> ends{false};
    void end() {
        ends = true;
        ends.notify_all();
    }
};

struct EndOfBlocking {
    Blocking& of;
    ~EndOfBlocking() { of.end(); }
};

struct BlockingService final : Service {
    BlockingService(unsigned k, Blocking& all) : index(k), blocking(all) {}
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(block_method, [this](Call call) {
            ++blocking.blocked;
            blocking.ends.wait(false);
            call.reply({});
        });
        registrar.add(number_method,
                      [this](Call call) { call.reply(as_bytes(std::to_string(index))); });
    }
    const unsigned index;
    Blocking& blocking;
};

Task<unsigned> accepted_by(Channel channel) {
    const auto reply = co_await call(channel, number_method, {}, {.timeout = test_timeout});
    co_return reply ? static_cast<unsigned>(std::stoul(std::string(as_text(*reply)))) : 99;
}

}  // namespace

TEST_CASE("contexts: a client connects while calls of another one block those that accept") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Blocking blocking;
        std::atomic<int> ended{0};
        Runtime server = Runtime::create(with_contexts(8)).value();
        const auto services = [&](const Here& here) {
            return std::make_unique<BlockingService>(here.index, blocking);
        };
        REQUIRE(server.serve(services, fresh_uri(scheme)).ok());
        Runtime hostile = Runtime::create(with_contexts(1)).value();
        const Channel to_all = hostile.connect(server.addresses().front()).value();
        const EndOfBlocking end{blocking};
        for (const unsigned k : {0u, 2u, 4u, 6u}) {
            to_all.on(k).call(block_method, {}, {.timeout = test_timeout},
                              [&](const Status&, ByteView) { ++ended; });
        }
        REQUIRE(wait_for([&] { return blocking.blocked == 4; }));
        REQUIRE(wait_for([&] {
            const std::vector<ContextLoad> loads = server.loads();
            return loads[0].is_blocked && loads[2].is_blocked && loads[4].is_blocked &&
                   loads[6].is_blocked;
        }));
        Runtime client = Runtime::create(with_contexts(1)).value();
        const Channel channel = client.connect(server.addresses().front()).value();
        CHECK(client.block_on(accepted_by(channel)) % 2 == 1);
        CHECK(ended == 0);
        blocking.end();
        REQUIRE(wait_for([&] { return ended == 4; }));
    }
}

// More of them than the client makes at a time, and more than may wait for one context.
TEST_CASE("contexts: connects that wait for blocked contexts delay those for another one little") {
    struct Case {
        unsigned blocked;
        int connects;  // To each of them.
    };
    for (const std::string& scheme : steering) {
        for (const Case& one : {Case{1, 100}, Case{2, 64}}) {
            CAPTURE(scheme, one.blocked);
            Blocking blocking;
            std::atomic<int> ended{0};
            Runtime server = Runtime::create(with_contexts(one.blocked + 1)).value();
            const auto services = [&](const Here& here) {
                return std::make_unique<BlockingService>(here.index, blocking);
            };
            REQUIRE(server.serve(services, fresh_uri(scheme)).ok());
            const std::string uri = server.addresses().front();
            Runtime client = Runtime::create(with_contexts(1)).value();
            const Channel first = client.connect(uri).value();
            const EndOfBlocking end{blocking};
            std::vector<Channel> waiting;
            int begun = 0;
            const auto ask = [&](const Channel& channel, const MethodId& method) {
                channel.call(method, {}, {.timeout = test_timeout},
                             [&](const Status&, ByteView) { ++ended; });
                ++begun;
            };
            for (unsigned k = 1; k <= one.blocked; ++k) ask(first.on(k), block_method);
            REQUIRE(wait_for([&] { return blocking.blocked == int(one.blocked); }));
            for (int i = 0; i < one.connects; ++i) {
                for (unsigned k = 1; k <= one.blocked; ++k) {
                    waiting.push_back(client.connect(uri).value());
                    ask(waiting.back().on(k), number_method);
                }
            }
            const Channel other = client.connect(uri).value();
            CHECK(client.block_on(accepted_by(other.on(0))) == 0);
            CHECK(ended == 0);
            blocking.end();
            REQUIRE(wait_for([&] { return ended == begun; }));
        }
    }
}

namespace {

// Calls back once the endpoints of all contexts are open.
struct OpeningProvider final : na::Provider {
    std::string_view scheme() const override { return inner->scheme(); }
    na::Diagnosis probe() override { return inner->probe(); }
    Result<std::unique_ptr<na::Endpoint>> open(const na::Address* listen, na::EndpointParts parts,
                                               TimePoint now) override {
        const bool is_last = parts.door && parts.context + 1 == parts.contexts;
        auto endpoint = inner->open(listen, std::move(parts), now);
        if (is_last) on_last();
        return endpoint;
    }
    Result<std::shared_ptr<na::Door>> open_door(const na::Address& listen, na::DoorParts parts,
                                                TimePoint now) override {
        return inner->open_door(listen, std::move(parts), now);
    }
    const std::unique_ptr<na::Provider> inner = na::make_unix_provider();
    std::function<void()> on_last;
};

}  // namespace

// A context that does not poll its endpoint answers no peer, and no fence.
TEST_CASE("contexts: no client is accepted before listen() has reached each context") {
    Blocking blocking;
    auto provider = std::make_unique<OpeningProvider>();
    OpeningProvider& opening = *provider;
    api::RuntimeParts parts = api::production_parts();
    parts.providers = std::make_shared<na::Registry>();
    parts.providers->add(std::move(provider));
    Runtime server =
        Runtime::from_impl(api::RuntimeImpl::make(with_contexts(3), std::move(parts)).value())
            .value();
    const auto services = [&](const Here& here) {
        return std::make_unique<BlockingService>(here.index, blocking);
    };
    REQUIRE(server.add(services).ok());
    opening.on_last = [&] {
        server.context(1).executor().post([&] {
            ++blocking.blocked;
            blocking.ends.wait(false);
        });
    };
    const std::string uri = fresh_uri("unix");
    auto listening = std::async(std::launch::async, [&] { return server.listen(uri); });
    const EndOfBlocking end{blocking};
    REQUIRE(wait_for([&] { return blocking.blocked == 1; }));
    Runtime client = Runtime::create(with_contexts(1)).value();
    const Channel channel = client.connect(uri).value();
    const auto ask = [&](Duration timeout) -> Task<Code> {
        co_return (co_await call(channel.on(0), number_method, {}, {.timeout = timeout}))
            .status()
            .code();
    };
    CHECK(client.block_on(ask(300ms)) == Code::unavailable);  // Not connected in time.
    CHECK(server.addresses().empty());
    blocking.end();
    REQUIRE(listening.get().ok());
    CHECK(client.block_on(ask(test_timeout)) == Code::ok);
    CHECK(server.addresses().size() == 1);
}

TEST_CASE("manual contexts: others accept while no thread turns those that would") {
    for (const std::string& scheme : steering) {
        CAPTURE(scheme);
        Blocking unused;
        Runtime client = Runtime::create(with_contexts(1)).value();
        std::optional<Runtime> server = Runtime::create(by_hand(8)).value();
        const auto services = [&](const Here& here) {
            return std::make_unique<BlockingService>(here.index, unused);
        };
        REQUIRE(server->serve(services, fresh_uri(scheme)).ok());
        TurningThreads threads(*server, {1, 3, 5, 7});
        const Channel channel = client.connect(server->addresses().front()).value();
        CHECK(client.block_on(accepted_by(channel)) % 2 == 1);
        threads.stop();
        server.reset();  // It turns the contexts itself.
    }
}
