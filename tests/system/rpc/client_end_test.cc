// The end of clients as their servers see it: what a server keeps of such a client, and how long
// the server's own end waits for it.
#include <atomic>
#include <optional>
#include <thread>

#include <weft/runtime.h>

#include "support/fresh_uri.h"
#include "support/lost_pair.h"
#include "support/raw_peer.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId answer_at_once("test.Clients/Answer");
constexpr MethodId hold_call("test.Clients/Hold");
constexpr MethodId block_call("test.Clients/Block");

struct Holder final : Service {
    std::vector<Call> held;  // Used by the runtime's thread until the runtime has ended.
    std::atomic<int> holds{0}, cancels{0}, blocks{0};
    std::atomic<bool> goes_on{false};
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(answer_at_once, [](Call call) { call.reply({}); });
        registrar.add(hold_call, [this](Call call) {
            call.on_cancel([this] { ++cancels; });
            held.push_back(std::move(call));
            ++holds;
        });
        registrar.add(block_call, [this](Call call) {
            ++blocks;
            goes_on.wait(false);
            call.reply({});
        });
    }
};

// False: not within `limit`.
bool wait_for(const std::atomic<int>& count, int least, std::chrono::nanoseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (count < least) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::yield();
    }
    return true;
}

}  // namespace

TEST_CASE("calls in handlers are cancelled at once when their client's runtime or channel ends") {
    const std::string scheme = GENERATE(as<std::string>(), "tcp", "unix", "sm", "ofi+tcp");
    const bool channel_first = GENERATE(true, false);
    if (!is_usable(scheme)) return;
    INFO(scheme << ", " << (channel_first ? "the channel ends first" : "the runtime ends first"));
    Holder service;
    std::optional<Runtime> server = Runtime::create().value();
    REQUIRE(server->serve(service, fresh_uri(scheme)).ok());
    for (int round = 1; round <= 4; ++round) {
        std::optional<Runtime> client = Runtime::create().value();
        std::optional<Channel> channel = client->connect(server->addresses().front()).value();
        channel->call(hold_call, {}, {.timeout = test_timeout}, [](const Status&, ByteView) {});
        REQUIRE(wait_for(service.holds, round, test_timeout));
        if (channel_first) channel.reset();
        client.reset();
        channel.reset();
        // The loss of a client is noticed after 3 s only.
        CHECK(wait_for(service.cancels, round, promised(1s)));
    }
    server.reset();
    service.held.clear();
}

namespace {

// A client with a call in a handler of a server that reads nothing meanwhile, and with more
// requests to this server than the connection has room for.
struct FullWay {
    static constexpr int calls = 42;
    std::atomic<int> ended{0};
    Holder service;
    std::optional<Runtime> server = Runtime::create().value();
    std::optional<Runtime> client = Runtime::create().value();
    std::optional<Channel> channel;

    explicit FullWay(const std::string& scheme) {
        REQUIRE(server->serve(service, fresh_uri(scheme)).ok());
        channel = client->connect(server->addresses().front()).value();
        call(hold_call, {});
        REQUIRE(wait_for(service.holds, 1, test_timeout));
        call(block_call, {});
        REQUIRE(wait_for(service.blocks, 1, test_timeout));
        const std::vector<std::byte> body(60'000);
        for (int i = 2; i < calls; ++i) call(answer_at_once, body);
        // After this all calls are submitted, and as many as fit have been sent.
        for (int i = 0; i < 2; ++i) node_of(*client).on_context([] {});
    }
    ~FullWay() {
        let_server_read();
        server.reset();
        service.held.clear();
    }
    void call(const MethodId& method, ByteView body) {
        channel->call(method, body, {.timeout = test_timeout},
                      [this](const Status&, ByteView) { ++ended; });
    }
    void let_server_read() {
        service.goes_on = true;
        service.goes_on.notify_all();
    }
};

}  // namespace

// Over ofi and verbs such a client counts as lost (docs/limits.md).
TEST_CASE("calls in handlers are cancelled at once when a client ends with a full connection") {
    const std::string scheme = GENERATE(as<std::string>(), "tcp", "unix", "sm");
    const bool channel_only = GENERATE(true, false);
    if (!is_usable(scheme)) return;
    INFO(scheme << ", " << (channel_only ? "the channel ends" : "the runtime ends"));
    FullWay rig(scheme);
    if (channel_only) {
        rig.channel.reset();
        REQUIRE(wait_for(rig.ended, FullWay::calls, test_timeout));
        rig.let_server_read();
    } else {
        std::thread ends([&] { rig.client.reset(); });
        CHECK(wait_for(rig.ended, FullWay::calls, test_timeout));
        rig.let_server_read();
        ends.join();
    }
    // The loss of a client is noticed after 3 s only.
    CHECK(wait_for(rig.service.cancels, 1, promised(1s)));
}

TEST_CASE("a runtime that ends waits a second at most for a server that reads nothing") {
    const std::string scheme = GENERATE(as<std::string>(), "tcp", "unix", "sm", "ofi+tcp");
    if (!is_usable(scheme)) return;
    INFO(scheme);
    FullWay rig(scheme);
    const auto began = std::chrono::steady_clock::now();
    rig.client.reset();
    CHECK(std::chrono::steady_clock::now() - began < promised(2s));
    CHECK(rig.ended == FullWay::calls);
}

TEST_CASE("a client that ends announces it once the queue of its connection has room") {
    Echo service;
    SimRig rig(1, {.connection_messages_max = 4, .joins_commits = false});
    service.hold = true;
    Runtime& client = rig.add("");  // Turns first: the server has not read when it ends.
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    Channel channel = client.connect("sim://server").value();
    const auto call = [&] {
        channel.call(echo_method, {}, {.timeout = 1min}, [](const Status&, ByteView) {});
    };
    call();
    REQUIRE(rig.run_until([&] { return service.held.size() == 1; }));
    const std::uint64_t queued = node_of(client).context.counters().frames_queued;
    for (int i = 0; i < 10; ++i) call();
    channel = Channel();
    rig.run_for(50ms);
    CHECK(node_of(client).context.counters().frames_queued == queued + 1);
    CHECK_FALSE(node_of(client).context.has_lingering_connections());
    CHECK(node_of(server).server.sessions() == 0);
    service.held.clear();
}

TEST_CASE("the end of a server does not wait for clients that ended in order before it") {
    const std::string scheme = GENERATE(as<std::string>(), "tcp", "unix", "sm", "ofi+tcp");
    if (!is_usable(scheme)) return;
    INFO(scheme);
    Holder service;
    std::optional<Runtime> server = Runtime::create().value();
    REQUIRE(server->serve(service, fresh_uri(scheme)).ok());
    Runtime stays = Runtime::create().value();
    const Channel channel = stays.connect(server->addresses().front()).value();
    std::atomic<int> answers{0};
    const auto answered = [&](const Status& status, ByteView) { answers += status.ok(); };
    channel.call(answer_at_once, {}, {.timeout = test_timeout}, answered);
    REQUIRE(wait_for(answers, 1, test_timeout));
    for (int i = 2; i < 5; ++i) {
        Runtime client = Runtime::create().value();
        const Channel own = client.connect(server->addresses().front()).value();
        own.call(answer_at_once, {}, {.timeout = test_timeout}, answered);
        REQUIRE(wait_for(answers, i, test_timeout));
        // These requests and their replies cross the client's end.
        for (int k = 0; k < 100; ++k) {
            own.call(answer_at_once, {}, {.timeout = test_timeout}, [](const Status&, ByteView) {});
        }
    }
    // The clients have ended. Only the server's own counters show that it keeps no state of them.
    rpc::Server& serves = node_of(*server).server;
    const auto end = std::chrono::steady_clock::now() + promised(1s);
    std::size_t sessions = 4;
    while (sessions > 1 && std::chrono::steady_clock::now() < end) {
        node_of(*server).on_context([&] { sessions = serves.sessions(); });
    }
    CHECK(sessions == 1);
    std::size_t awaited = 1;
    node_of(*server).on_context([&] { awaited = serves.awaited_sessions(); });
    CHECK(awaited == 0);
}

namespace {

// A server that ends while raw peers connect and disconnect.
struct Visited : Lost {
    api::RuntimeImpl& impl = impl_of(server);
    RawPeer raw{rig};

    Frame request(std::uint32_t sequence) const {
        rpc::RequestHeader header;
        header.call = {0, sequence};
        header.remaining_us = rpc::remaining_unbounded;
        header.method = echo_method.hash;
        return frame_of(header);
    }
    Frame session_frame(bool resumes) const {
        rpc::SessionFrame frame;
        frame.head.flags = resumes ? rpc::resume_flag : 0;
        frame.id = raw.session;
        return frame_of(frame);
    }
    Frame query() const {
        rpc::CallQueryFrame frame;
        frame.call = {0, 1};
        return frame_of(frame);
    }
    void begin_drain() {
        impl.node.context.post([this] { impl.begin_drain(); });
        rig.run_for(1ms);
    }
    bool is_drained() {
        bool is_done = false;
        impl.node.context.post([&] {
            const auto [left, leaving] = impl.left_to_drain();
            is_done = left == 0 && leaving == 0;
        });
        rig.run_for(1ms);
        return is_done;
    }
};

}  // namespace

TEST_CASE("the end of a server does not wait for sessions that began while it ends") {
    Visited rig;
    rig.begin_drain();
    CHECK(rig.is_drained());
    const bool calls = GENERATE(true, false);
    for (int i = 0; i < 3; ++i) {
        rig.raw.connect("server");
        if (calls) REQUIRE(rig.raw.send_as_is(rig.request(1)));
        rig.raw.wait();
        rig.raw.close();
        rig.rig.run_for(1ms);
        CHECK(rig.is_drained());
    }
}

TEST_CASE("the end of a server waits only once for a session that is resumed repeatedly") {
    Visited rig;
    const bool asks = GENERATE(true, false);
    const bool before = GENERATE(true, false);
    INFO((asks ? "with a query" : "without a query")
         << (before ? ", lost before the drain" : ", lost during the drain"));
    rig.raw.connect("server");
    REQUIRE(rig.raw.send_as_is(rig.request(1)));
    rig.raw.wait();
    if (before) rig.raw.close();
    rig.begin_drain();
    const TimePoint begin = rig.rig.clock->now();
    while (!rig.is_drained() && rig.rig.clock->now() - begin < 10s) {
        if (!rig.raw.lost) rig.raw.close();
        rig.rig.run_for(100ms);
        rig.raw.connect_bare("server");
        rig.raw.send_as_is(rig.session_frame(true));
        if (asks) rig.raw.send_as_is(rig.query());
        rig.raw.wait();
    }
    // The time in which a client reconnects and queries its server.
    CHECK(rig.rig.clock->now() - begin < 1500ms);
}

TEST_CASE("the end of a server does not wait for sessions that are resumed one after the other") {
    Visited rig;
    std::vector<rpc::SessionId> sessions;
    for (int i = 0; i < 20; ++i) {
        rig.raw.connect("server");
        REQUIRE(rig.raw.send_as_is(rig.request(1)));
        rig.raw.wait();
        rig.raw.close();
        sessions.push_back(rig.raw.session);
    }
    rig.rig.run_for(900ms);
    rig.begin_drain();
    const TimePoint begin = rig.rig.clock->now();
    for (std::size_t i = 0; i < sessions.size() && !rig.is_drained(); ++i) {
        rig.raw.connect_bare("server");
        rig.raw.session = sessions[i];
        rig.raw.send_as_is(rig.session_frame(true));
        rig.raw.wait(200ms);
        rig.raw.close();
    }
    REQUIRE(rig.rig.run_until([&] { return rig.is_drained(); }, 30s));
    CHECK(rig.rig.clock->now() - begin < 1500ms);
}

namespace {

// A call that a handler holds when its client's runtime ends.
struct HeldCall : Lost {
    HeldCall() {
        warm_up();
        service.hold = true;
        channel.call(echo_method, {}, {.timeout = 60s}, outcome.done());
        REQUIRE(rig.run_until([&] { return service.held.size() == 1; }));
        CHECK(node_of(server).server.sessions() == 1);
    }
    void check_end_is_heard() {
        rig.runtimes.pop_back();
        channel = Channel();
        rig.run_for(1ms);
        CHECK(service.held[0].cancelled());
        CHECK(node_of(server).server.sessions() == 0);
        CHECK(node_of(server).context.counters().malformed_peers == 0);
        service.held.clear();
        CHECK(outcome.status.code() == Code::cancelled);
    }
    CallOutcome outcome;
};

}  // namespace

TEST_CASE("a server frees the session of a client when the client's runtime ends in order") {
    HeldCall held;
    held.check_end_is_heard();
}

TEST_CASE("a server frees the session of a client that ends while the session is resumed") {
    HeldCall held;
    held.lose_connection();
    REQUIRE(held.rig.run_until([&] { return held.served().resumed == 1; }));
    REQUIRE(held.calls.counters().resumed == 0);  // The reply is in flight.
    held.check_end_is_heard();
}
