// The end of a runtime, and of a client, with user code in each callback that reports it.
#include <atomic>
#include <future>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/offload.h>

#include "rpc/channel_impl.h"
#include "rpc/header.h"
#include "support/fresh_uri.h"
#include "support/hold_server.h"
#include "support/raw_echo.h"
#include "support/raw_peer.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

// A lock service: when one client disconnects, the next call in line is answered.
struct Locks final : Service {
    std::vector<Call> held;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [this](Call call) {
            call.on_cancel([this] {
                if (held.size() < 2) return;
                Call next = std::move(held[1]);
                held.erase(held.begin() + 1);
                next.reply(as_bytes("for the dead client"));
            });
            held.push_back(std::move(call));
        });
    }
};

Frame request(std::uint32_t slot, const MethodId& method) {
    rpc::RequestHeader header;
    header.call = {slot, 1};
    header.remaining_us = 1'000'000;
    header.method = method.hash;
    return frame_of(header);
}

Task<> calls_and_cleans_up(Channel channel, bool& cleaned) {
    (void)co_await weft::call(channel, echo_method, {}, {});
    const auto work = [&] { cleaned = true; };
    co_await weft::offload(work);
}

// Repeats its call for ever when it fails.
struct Retry {
    Channel channel;
    std::uint64_t tries = 0;
    void again() {
        ++tries;
        channel.call(echo_method, {}, {}, [this](const Status& status, ByteView) {
            if (!status.ok()) again();
        });
    }
};

void post_for_ever(Executor& executor, const std::shared_ptr<int>& held) {
    executor.post([&executor, held] { post_for_ever(executor, held); });
}

}  // namespace

TEST_CASE("a reply to another call of a lost client does not disturb the next client") {
    Locks service;
    SimRig rig;
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    RawPeer first(rig), second(rig);
    first.connect("server");
    for (std::uint32_t slot = 0; slot < 2; ++slot) {
        REQUIRE(first.send(request(slot, echo_method)));
        first.wait();
    }
    REQUIRE(service.held.size() == 2);
    // The garbage closes the connection; the next client connects in the same batch of events.
    REQUIRE(first.send(as_bytes("garbage!")));
    second.connect("server");
    second.wait(1ms);
    CHECK(second.take().empty());
    REQUIRE(second.send(request(7, MethodId("weft.Node/Ping"))));
    second.wait(1ms);
    CHECK_FALSE(second.lost);
    CHECK(second.take().size() == 1);
    service.held.clear();
    CHECK(node_of(server).server.executing() == 0);
}

TEST_CASE("a cancelled call of a closed channel does not release the next channel's peer") {
    Pair pair;
    pair.service.hold = true;
    CallOutcome cancelled, outcome;
    Channel fresh;
    const OperationId id = pair.channel.call(echo_method, {}, {.timeout = 60s}, cancelled.done());
    REQUIRE(pair.rig.run_until([&] { return !pair.service.held.empty(); }));
    const core::PeerRef before = rpc::ChannelImpl::of(pair.channel)->peer();
    pair.channel.cancel_call(id);
    pair.channel = Channel();  // Posts the channel's end; the next channel takes its slot in the
                               // same turn.
    pair.client.executor().post([&] {
        fresh = pair.client.connect("sim://server").value();
        fresh.call(echo_method, {}, {.timeout = 60s}, outcome.done());
    });
    REQUIRE(pair.rig.run_until([&] { return pair.service.held.size() == 2; }));
    CHECK(cancelled.completions == 1);
    REQUIRE(rpc::ChannelImpl::of(fresh)->peer().at == before.at);
    CHECK(before.at->interest == 1);
    pair.service.held.clear();
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    CHECK(before.at->interest == 0);
}

TEST_CASE("the end of a server waits until its large replies are fetched") {
    HoldServer service;
    Runtime server = Runtime::create().value();
    REQUIRE(server.serve(service, "sm://end-" + std::to_string(::getpid())).ok());
    std::atomic<bool> has_ended{false};
    Status ended;
    std::thread runs([&] {
        ended = server.run();
        has_ended = true;
    });
    Runtime client = Runtime::create({.wait = WaitMode::spin, .manual = true}).value();
    Channel channel = client.connect(server.addresses().front()).value();
    const std::vector<std::byte> large(1 << 20, std::byte{5});
    CallOutcome outcome;
    channel.call(HoldServer::hold, large, {.timeout = test_timeout}, outcome.done());
    const auto held = [&] {
        std::size_t count = 0;
        node_of(server).on_context([&] { count = service.held.size(); });
        return count;
    };
    REQUIRE(client.turn_until([&] { return held() == 1; }, test_timeout));
    // The server replies, but the client does not turn.
    node_of(server).on_context([&] {
        service.held.front().reply(large);
        service.held.clear();
    });
    server.stop();
    const auto soon = std::chrono::steady_clock::now() + 300ms;
    while (!has_ended && std::chrono::steady_clock::now() < soon) std::this_thread::yield();
    CHECK_FALSE(has_ended);
    REQUIRE(client.turn_until([&] { return outcome.completions == 1; }, test_timeout));
    CHECK(outcome.status.ok());
    CHECK(outcome.reply.size() == large.size());
    REQUIRE(client.turn_until([&] { return has_ended.load(); }, test_timeout));
    runs.join();
    CHECK(ended.ok());
}

TEST_CASE("calls that a service holds may outlive the runtime") {
    const unsigned contexts = GENERATE(1u, 3u);
    CAPTURE(contexts);
    Echo service;
    service.hold = true;
    CallOutcome first, second;
    {
        SimRig rig;
        REQUIRE(rig.add("server", {.contexts = contexts}).add(shared(service)).ok());
        Channel channel = rig.add("").connect("sim://server").value();
        channel.call(echo_method, as_bytes("x"), {}, first.done());
        channel.call(echo_method, as_bytes("y"), {}, second.done());
        REQUIRE(rig.run_until([&] { return service.held.size() == 2; }));
    }
    CHECK(first.completions == 1);
    CHECK(second.completions == 1);
    CHECK(service.held[0].cancelled());
    CHECK(service.held[0].method() == echo_method.name);
    service.held[0].reply(as_bytes("dropped"));
    Status status;
    service.held[1].get({}, 0, Buffer(), [&](const Status& with) { status = with; });
    CHECK(status.code() == Code::cancelled);
    service.held[1].fail(std::make_exception_ptr(std::runtime_error("not here")));
    service.held.clear();
}

TEST_CASE("a coroutine may offload after the end of the runtime cancelled its call") {
    bool cleaned = false;
    Echo service;
    service.hold = true;
    SimRig rig;
    REQUIRE(rig.add("server").add(service).ok());
    Runtime& client = rig.add("");
    client.spawn(calls_and_cleans_up(client.connect("sim://server").value(), cleaned));
    REQUIRE(rig.run_until([&] { return !service.held.empty(); }));
    rig.runtimes.pop_back();
    CHECK(cleaned);
    service.held.clear();
}

TEST_CASE("offloaded work may need the context while the runtime ends") {
    const auto view = GroupView::make("group", 1, {{0, {"sm://absent"}}}).value();
    auto runtime = std::make_unique<Runtime>(Runtime::create().value());
    Group group = runtime->group(view).value();
    std::atomic<int> rounds{0};
    runtime->executor().offload([&rounds, group] {
        for (int i = 0; i < 2000; ++i) {
            (void)group.channel(0);
            ++rounds;
        }
    });
    while (rounds == 0) std::this_thread::yield();
    group = Group();
    runtime.reset();
    CHECK(rounds == 2000);
}

TEST_CASE("a call that is retried for ever ends with its runtime") {
    Retry retry;
    Echo service;
    service.hold = true;
    {
        SimRig rig;
        REQUIRE(rig.add("server").add(service).ok());
        retry.channel = rig.add("").connect("sim://server").value();
        retry.again();
        REQUIRE(rig.run_until([&] { return !service.held.empty(); }));
        service.held.clear();
    }
    CHECK(retry.tries > 1);
    retry.channel = Channel();
}

TEST_CASE("work that posts itself does not keep its runtime from ending") {
    auto runtime = std::make_unique<Runtime>(Runtime::create({.log_level = LogLevel::off}).value());
    const auto held = std::make_shared<int>();
    post_for_ever(runtime->executor(), held);
    runtime.reset();
    CHECK(held.use_count() == 1);  // The last work is destroyed with its runtime.
}

TEST_CASE("a runtime ends while other threads call on its channels") {
    // One thread that does not wait for its replies, or 40 that do.
    const int threads = GENERATE(1, 40);
    CAPTURE(threads);
    const bool waits = threads > 1;
    constexpr std::uint64_t most = 4'000'000;  // Reached only when the end waits for the callers.
    std::atomic<bool> has_ended = false;
    std::atomic<std::uint64_t> begun = 0, ended = 0;
    std::vector<std::thread> callers;
    {
        Runtime runtime =
            Runtime::create({.drain_timeout = 100ms, .log_level = LogLevel::off}).value();
        const Channel channel = runtime.connect(fresh_uri("sm")).value();
        for (int i = 0; i < threads; ++i) {
            callers.emplace_back([&, channel] {
                while (!has_ended && begun < most) {
                    std::promise<void> answered;
                    ++begun;
                    channel.call(echo_method, {}, {}, [&, waits](const Status&, ByteView) {
                        ++ended;
                        if (waits) answered.set_value();
                    });
                    if (waits) answered.get_future().wait();
                }
            });
        }
        while (begun < 1000) std::this_thread::yield();
    }
    has_ended = true;
    CHECK(begun < most);
    for (std::thread& caller : callers) caller.join();
    CHECK(ended == begun);
}

// During and after the end, completions defer further calls, and other threads add to the deferred
// work.
TEST_CASE("chains of calls that other threads start while a runtime ends all complete") {
    std::atomic<std::uint64_t> begun = 0, ended = 0;
    for (int round = 0; round < 60; ++round) {
        std::atomic<bool> has_ended = false;
        std::vector<std::thread> callers;
        {
            Runtime runtime = Runtime::create({.log_level = LogLevel::off}).value();
            const Channel channel = runtime.connect(fresh_uri("sm")).value();
            const std::uint64_t before = begun;
            for (int i = 0; i < 3; ++i) {
                callers.emplace_back([&, channel] {
                    while (!has_ended) {
                        if (begun - ended > 300) {
                            std::this_thread::yield();
                            continue;
                        }
                        ++begun;
                        channel.executor().post([&ended, channel] {
                            channel.call(echo_method, {}, {}, [&ended, channel](auto&&...) {
                                channel.call(echo_method, {}, {}, [&ended](auto&&...) { ++ended; });
                            });
                        });
                    }
                });
            }
            while (begun < before + 100) std::this_thread::yield();
        }
        const std::uint64_t at_end = begun;
        while (begun < at_end + 5000) std::this_thread::yield();
        has_ended = true;
        for (std::thread& caller : callers) caller.join();
        REQUIRE(ended == begun);
    }
}

TEST_CASE("the last channel may be destroyed in work that is posted after the end") {
    SimRig rig;
    Channel channel = rig.add("server").connect("sim://server").value();
    const std::weak_ptr<api::RuntimeImpl> impl = impl_of(*rig.runtimes[0]).weak_from_this();
    rig.runtimes.clear();
    Executor& executor = channel.executor();
    executor.post([channel = std::move(channel)]() mutable { channel = Channel(); });
    CHECK(impl.expired());
}
