// Use of a runtime during and after its end, from its callbacks and from other threads: each
// operation completes, no thread waits for ever, and no memory is used after its release.
#include <unistd.h>

#include <atomic>
#include <future>
#include <thread>

#include <weft/await.h>
#include <weft/offload.h>

#include "support/raw_echo.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

GroupView view() { return GroupView::make("group", 1, {{0, {"sim://absent"}}}).value(); }

// Runs `work` on a thread of its own; aborts the test program when the work does not end.
template <class Work>
void must_end(Work&& work) {
    std::future<void> ended = std::async(std::launch::async, std::forward<Work>(work));
    if (ended.wait_for(test_timeout) == std::future_status::ready) return;
    std::fputs("it never ends\n", stderr);
    std::abort();
}

struct RetryGet {
    Channel channel;
    Buffer buffer;
    std::uint64_t tries = 0;
    void again() {
        ++tries;
        channel.get({}, 0, buffer, {}, [this](const Status& status) {
            if (!status.ok()) again();
        });
    }
};

// An operation in memory of its own, so that it can be destroyed before its coroutine's frame.
struct Started {
    CallOperation operation;
};
struct StartedTransfer {
    TransferOperation operation;
};

Task<> drops_the_second(Channel channel) {
    (void)co_await weft::call(channel, echo_method, {}, {});  // Cancelled by the end.
    auto first = weft::call(channel, echo_method, {}, {});
    std::unique_ptr<Started> second(new Started{weft::call(channel, echo_method, {}, {})});
    if (const auto reply = co_await first; !reply.ok()) co_return;
    (void)co_await second->operation;
}

// Calls, and blocks this thread until the outcome.
void call_and_wait(const Channel& channel, const CallOptions& options) {
    std::promise<void> told;
    channel.call(echo_method, {}, options, [&](const Status&, ByteView) { told.set_value(); });
    told.get_future().get();
}

Task<> cleans_up_by_a_call(Channel channel) {
    (void)co_await weft::call(channel, echo_method, {}, {.timeout = no_timeout});
    const auto work = [&] { call_and_wait(channel, {.timeout = 1s}); };
    co_await weft::offload(work);
}

struct Keeper final : Service {
    std::shared_ptr<int> witness = std::make_shared<int>(1);
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [held = std::vector<Call>(), kept = std::move(witness)](
                                       Call call) mutable { held.push_back(std::move(call)); });
    }
};

struct AnswersThenGets final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(echo_method, [](Call call) {
            call.reply({});
            delete new StartedTransfer{weft::get(call, {}, 0, Buffer())};
        });
    }
};

}  // namespace

TEST_CASE("transfers that are retried for ever end with their runtime") {
    RetryGet retry;
    {
        SimRig rig;
        rig.add("server");
        Runtime& client = rig.add("");
        retry.buffer = client.allocate(4096).value();
        retry.channel = client.connect("sim://server").value();
        client.executor().post([&] { retry.again(); });
        client.turn();
        client.turn();
    }
    CHECK(retry.tries > 1);
    retry.buffer = Buffer();
    retry.channel = Channel();
}

TEST_CASE("the last group may be destroyed in work that is posted after the end") {
    SimRig rig;
    Runtime& runtime = rig.add("server");
    Group group = runtime.group(view()).value();
    const std::weak_ptr<api::RuntimeImpl> impl = impl_of(runtime).weak_from_this();
    Executor& executor = runtime.executor();
    rig.runtimes.clear();
    REQUIRE_FALSE(impl.expired());
    executor.post([group = std::move(group)]() mutable { group = Group(); });
    CHECK(impl.expired());
}

TEST_CASE("work of another thread may need the context after the end") {
    SimRig rig;
    Runtime& runtime = rig.add("server");
    Group group = runtime.group(view()).value();
    Executor& executor = runtime.executor();
    rig.runtimes.clear();
    must_end([&] { executor.post([&] { (void)group.channel(0); }); });
}

TEST_CASE("ended runtimes may post to each other") {
    SimRig rig;
    Channel a = rig.add("a").connect("sim://b").value();
    Channel b = rig.add("b").connect("sim://a").value();
    rig.runtimes.clear();
    std::atomic<int> inside{0};
    const auto cross = [&](Executor& here, Executor& there) {
        here.post([&] {
            ++inside;
            while (inside < 2) std::this_thread::yield();
            there.post([] {});
        });
    };
    must_end([&] {
        std::thread other([&] { cross(a.executor(), b.executor()); });
        cross(b.executor(), a.executor());
        other.join();
    });
}

TEST_CASE("two threads may call on a channel that outlives its runtime") {
    SimRig rig;
    Channel channel = rig.add("server").connect("sim://server").value();
    const std::shared_ptr<api::RuntimeImpl> impl = impl_of(*rig.runtimes[0]).shared_from_this();
    rig.runtimes.clear();
    std::atomic<int> completions{0};
    const auto calls = [&] {
        for (int i = 0; i < 20'000; ++i) {
            channel.call(echo_method, {}, {}, [&](const Status&, ByteView) { ++completions; });
        }
    };
    std::thread other(calls);
    calls();
    other.join();
    channel.executor().post([] {});
    CHECK(completions == 40'000);
    CHECK(impl->node.client.in_flight() == 0);
}

TEST_CASE("posted work of any length runs before the end and releases its runtime") {
    SimRig rig;
    Runtime& runtime = rig.add("server");
    Channel channel = runtime.connect("sim://server").value();
    const std::weak_ptr<api::RuntimeImpl> impl = impl_of(runtime).weak_from_this();
    constexpr int posts = 300'000;
    int ran = 0;
    for (int i = 0; i < posts; ++i) runtime.executor().post([&ran, channel] { ++ran; });
    channel = Channel();
    rig.runtimes.clear();
    CHECK(ran == posts);
    CHECK(impl.expired());
}

TEST_CASE("posts that race with the end all run") {
    for (int round = 0; round < 300; ++round) {
        SimRig rig;
        Channel channel = rig.add("server").connect("sim://server").value();
        std::atomic<int> ran{0};
        std::atomic<bool> begun{false}, stop{false};
        int posted = 0;
        std::thread other([&] {
            begun = true;
            for (; !stop && posted < 20'000; ++posted) channel.executor().post([&] { ++ran; });
        });
        while (!begun) std::this_thread::yield();
        rig.runtimes.clear();
        stop = true;
        other.join();
        REQUIRE(ran == posted);
    }
}

TEST_CASE("an operation that is dropped after the end receives no completion") {
    SimRig rig;
    Channel channel = rig.add("server").connect("sim://server").value();
    rig.runtimes.clear();
    bool ran = false;
    channel.executor().post([&] {
        channel.abandon_call(
            channel.call(echo_method, {}, {}, [&](const Status&, ByteView) { ran = true; }));
        delete new Started{weft::call(channel, echo_method, {}, {})};
    });
    CHECK_FALSE(ran);
}

TEST_CASE("an operation that is dropped while the runtime ends receives no completion") {
    Echo service;
    service.hold = true;
    SimRig rig;
    REQUIRE(rig.add("server").add(service).ok());
    Runtime& client = rig.add("");
    client.spawn(drops_the_second(client.connect("sim://server").value()));
    REQUIRE(rig.run_until([&] { return !service.held.empty(); }));
    rig.runtimes.pop_back();
    service.held.clear();
}

TEST_CASE("a dropped transfer of an answered call receives no completion") {
    AnswersThenGets service;
    SimRig rig;
    REQUIRE(rig.add("server").add(service).ok());
    Channel channel = rig.add("").connect("sim://server").value();
    CallOutcome outcome;
    channel.call(echo_method, {}, {}, outcome.done());
    REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
    rig.run_until_idle();
}

TEST_CASE("completions that the end of a runtime runs can't connect, listen or expose") {
    Echo service;
    SimRig rig;
    service.hold = true;
    REQUIRE(rig.add("server").add(service).ok());
    Runtime& client = rig.add("");
    const std::shared_ptr<api::RuntimeImpl> impl = impl_of(client).shared_from_this();
    Channel channel = client.connect("sim://server").value();
    Status connected, listened, exposed;
    channel.call(echo_method, {}, {}, [&](const Status&, ByteView) {
        connected = client.connect("sim://server").status();
        listened = client.listen("sim://ghost");
        exposed = client.expose(client.allocate(4096).value(), {}).status();
    });
    REQUIRE(rig.run_until([&] { return !service.held.empty(); }));
    rig.runtimes.pop_back();
    CHECK(connected.code() == Code::unavailable);
    CHECK(listened.code() == Code::unavailable);
    CHECK(exposed.code() == Code::unavailable);
    CHECK(impl->node.context.endpoints().empty());
    service.held.clear();
}

TEST_CASE("a call made while the end of the runtime releases memory completes, too") {
    CallOutcome outcome;
    {
        SimRig rig;
        Channel channel = rig.add("").connect("sim://absent").value();
        Region region =
            rig.runtimes[0]
                ->expose(rig.runtimes[0]->allocate(4096).value(), {.access = Access::read})
                .value();
        // Not fenced before the end: no turn runs.
        region.close([&, channel] { channel.call(echo_method, {}, {}, outcome.done()); });
    }
    CHECK(outcome.completions == 1);
    CHECK_FALSE(outcome.status.ok());
}

TEST_CASE("a handler that owns its calls is destroyed with its runtime") {
    Keeper service;
    const std::weak_ptr<int> witness = service.witness;
    CallOutcome outcome;
    {
        SimRig rig;
        REQUIRE(rig.add("server").add(service).ok());
        Channel channel = rig.add("").connect("sim://server").value();
        channel.call(echo_method, {}, {}, outcome.done());
        rig.run_for(1ms);
    }
    CHECK(outcome.completions == 1);
    CHECK(witness.expired());
}

TEST_CASE("offloaded work may wait for a call while the runtime ends") {
    Echo service;
    service.hold = true;
    Runtime server = Runtime::create().value();
    const std::string uri = "sm://late-" + std::to_string(getpid());
    REQUIRE(server.serve(service, uri).ok());
    const auto holds = [&](std::size_t calls) {
        bool there = false;
        while (!there) node_of(server).on_context([&] { there = service.held.size() >= calls; });
    };
    {
        auto client = std::make_unique<Runtime>(Runtime::create().value());
        Channel channel = client->connect(uri).value();
        client->executor().offload([channel] { call_and_wait(channel, {.timeout = no_timeout}); });
        holds(1);
        must_end([&] { client.reset(); });
    }
    {
        auto client = std::make_unique<Runtime>(Runtime::create().value());
        client->spawn(cleans_up_by_a_call(client->connect(uri).value()));
        holds(2);
        must_end([&] { client.reset(); });
    }
    node_of(server).on_context([&] { service.held.clear(); });
}
