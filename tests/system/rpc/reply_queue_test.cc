// Replies that are ready faster than they are sent: a client that reads receives all of them.
#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "support/fresh_uri.h"
#include "support/raw_echo.h"
#include "support/usable.h"
#include "support/wait_for.h"

namespace weft::rpc_reply_queue_test {
namespace {

using namespace weft::test;

constexpr MethodId hold_method("test.Held/Hold");
constexpr std::size_t reply_bytes = 60'000;  // Fits a message on every transport.

// Holds calls until answer(), which replies to all in one turn.
struct Held final : Service {
    std::vector<Call> held;
    bool answers_on_drain = false;
    std::atomic<std::size_t> holds{0};

    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(hold_method, [this](Call call) {
            if (held.empty() && answers_on_drain) call.on_drain([this] { answer(); });
            held.push_back(std::move(call));
            ++holds;
        });
    }
    void answer() {
        const std::vector<std::byte> body(reply_bytes, std::byte{7});
        for (Call& call : std::exchange(held, {})) call.reply(body);
    }
};

struct Tally {
    std::atomic<int> ok{0}, ended{0};
    std::mutex mutex;
    std::vector<Status> failed;  // Read after all calls have ended.
    Completion done() {
        return [this](const Status& status, ByteView body) {
            ok += status.ok() && body.size() == reply_bytes;
            if (!status.ok()) {
                const std::lock_guard lock(mutex);
                failed.push_back(status);
            }
            ++ended;
        };
    }
};

struct Simulated {
    explicit Simulated(RuntimeOptions options = {})
        : server(rig.add("server", std::move(options))), client(rig.add("")) {
        REQUIRE(server.add(service).ok());
        channel = client.connect("sim://server").value();
    }
    void hold(int calls, Tally& tally) {
        for (int i = 0; i < calls; ++i) {
            channel.call(hold_method, {}, {.timeout = 20s}, tally.done());
        }
        REQUIRE(rig.run_until([&] { return service.holds == std::size_t(calls); }));
    }
    void answer(int calls, const Tally& tally) {
        node_of(server).on_context([&] { service.answer(); });
        REQUIRE(rig.run_until([&] { return tally.ended == calls; }));
    }

    Held service;
    SimRig rig;
    Runtime& server;
    Runtime& client;
    Channel channel;
};

}  // namespace

TEST_CASE("replies that are ready at once reach a client that reads them") {
    Simulated pair;
    Tally tally;
    constexpr int calls = 1000;  // 60 MB; a session has 1016 slots.
    pair.hold(calls, tally);
    pair.answer(calls, tally);
    CHECK(tally.ok == calls);
}

TEST_CASE("replies beyond the queue limit of a client are sent by rendezvous") {
    Simulated pair({.waiting_bytes_max = 1 << 20});
    Tally tally;
    constexpr int calls = 300;
    pair.hold(calls, tally);
    pair.answer(calls, tally);
    CHECK(tally.ok == calls);
}

TEST_CASE("replies that find no memory fail alone, with effect applied") {
    Simulated pair({.argument_bytes_max = 64 << 10, .waiting_bytes_max = 1 << 20});
    Tally tally;
    constexpr int calls = 300;
    pair.hold(calls, tally);
    pair.answer(calls, tally);
    CHECK(tally.ok > 0);
    CHECK(tally.ok < calls);
    for (const Status& status : tally.failed) {
        CHECK(status.code() == Code::resource_exhausted);
        CHECK(status.effect() == Effect::applied);
    }
    // The connection is still up, and there is room again.
    Tally next;
    pair.service.holds = 0;
    pair.hold(1, next);
    pair.answer(1, next);
    CHECK(next.ok == 1);
    CHECK(node_of(pair.client).client.counters().resumed == 0);
}

TEST_CASE("inline puts leave room in the reply queue for the replies") {
    Simulated pair;
    constexpr int calls = 400, puts = 64;
    constexpr std::size_t record = 64;
    const Buffer memory = pair.client.allocate(puts * record).value();
    const Region region = pair.client.expose(memory, {.access = Access::write}).value();
    const RegionRef ref = region.ref();
    std::array<std::byte, RegionRef::wire_bytes> body;
    ref.encode(body);
    int ok = 0, refused = 0, other = 0;
    for (int i = 0; i < calls; ++i) {
        pair.channel.call(hold_method, body, {.timeout = 20s, .inline_bulk = &ref},
                          [&](const Status& status, ByteView) {
                              const bool is_full = status.code() == Code::resource_exhausted;
                              ++(status.ok() ? ok : is_full ? refused : other);
                          });
    }
    REQUIRE(pair.rig.run_until([&] { return pair.service.holds == calls; }));
    const Buffer from = pair.server.allocate(record).value();
    node_of(pair.server).on_context([&] {
        for (Call& call : std::exchange(pair.service.held, {})) {
            const auto shared = std::make_shared<Call>(std::move(call));
            const auto left = std::make_shared<int>(puts);
            for (int i = 0; i < puts; ++i) {
                shared->put(ref, i * record, from, [shared, left](const Status& status) {
                    if (!status.ok()) shared->fail(status);
                    if (--*left == 0) shared->reply({});
                });
            }
        }
    });
    REQUIRE(pair.rig.run_until([&] { return ok + refused + other == calls; }));
    CHECK(ok > 0);
    CHECK(other == 0);
    CHECK(node_of(pair.client).client.counters().resumed == 0);
}

TEST_CASE("an orderly end sends replies that are ready at once to a client that reads them") {
    for (const char* scheme : {"sm", "tcp", "unix", "ofi+tcp"}) {
        DYNAMIC_SECTION(scheme) {
            if (!is_usable(scheme)) return;
            Tally tally;
            Held service;
            service.answers_on_drain = true;
            Runtime server = Runtime::create().value();
            REQUIRE(server.serve(service, fresh_uri(scheme)).ok());
            Runtime client = Runtime::create().value();
            const Channel channel = client.connect(server.addresses().front()).value();
            constexpr int calls = 500;
            for (int i = 0; i < calls; ++i) {
                channel.call(hold_method, {}, {.timeout = test_timeout}, tally.done());
            }
            REQUIRE(wait_for([&] { return service.holds == calls; }));
            std::optional<Status> ended;
            std::thread runs([&] { ended = server.run(); });
            server.stop();
            runs.join();
            CHECK(ended->to_string() == Status().to_string());
            REQUIRE(wait_for([&] { return tally.ended == calls; }));
            CHECK(tally.ok == calls);
        }
    }
}

}  // namespace weft::rpc_reply_queue_test
