// Connections reach a server while the contexts that accept them are blocked, or are turned by no
// thread.
#include <atomic>
#include <optional>
#include <vector>

#include <weft/await.h>

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
