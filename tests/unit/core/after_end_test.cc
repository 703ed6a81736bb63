// Tasks and handlers that end after their runtime, because they await objects of the program.
#include <algorithm>
#include <atomic>
#include <functional>
#include <thread>

#include <weft/combine.h>
#include <weft/protobuf_group.h>
#include <weft/sim.h>

#include "support/echo.h"
#include "support/fresh_uri.h"
#include "support/gate.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace after_end_test {

using namespace weft;
using namespace weft::test;

// A queue that stays empty: its end resumes its waiters. A waiter may be destroyed before.
class Queue {
  public:
    struct Next {
        explicit Next(Queue& in) : queue(in) {}
        Next(const Next&) = delete;
        ~Next() { std::erase(queue.waiting_, this); }
        bool await_ready() const { return false; }
        void await_suspend(std::coroutine_handle<> coroutine) {
            awaiting = coroutine;
            queue.waiting_.push_back(this);
            ++queue.waited;
        }
        void await_resume() const {}
        Queue& queue;
        std::coroutine_handle<> awaiting;
    };
    explicit Queue(int& ended) : ended_(ended) {}
    ~Queue() { close(); }
    void close() {
        while (!waiting_.empty()) {
            Next* const next = waiting_.back();
            waiting_.pop_back();
            next->awaiting.resume();
        }
    }
    Next next() { return Next(*this); }
    void note_end() const { ++ended_; }
    std::atomic<int> waited{0};

  private:
    int& ended_;
    std::vector<Next*> waiting_;
};

Task<int> pop(Queue& queue) {
    co_await queue.next();
    co_return 1;
}

bool comes_true(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::yield();
    }
    return true;
}

enum class Form { any, all, many, nested };
constexpr Form forms[] = {Form::any, Form::all, Form::many, Form::nested};

Task<int> two_of(Queue& queue) { co_return (co_await when_any(pop(queue), pop(queue))).value(); }

Task<void> work(Queue& queue, Form form) {
    if (form == Form::any) (void)co_await when_any(pop(queue), pop(queue));
    if (form == Form::all) (void)co_await when_all(pop(queue), pop(queue));
    if (form == Form::many) {
        std::vector<Task<int>> tasks;
        for (int i = 0; i < 3; ++i) tasks.push_back(pop(queue));
        (void)co_await when_all(std::move(tasks));
    }
    if (form == Form::nested) (void)co_await when_all(two_of(queue), pop(queue));
    queue.note_end();
}

TEST_CASE("concurrent tasks that end after their runtime complete the task that awaits them") {
    for (const Form form : forms) {
        CAPTURE(form);
        int ended = 0;
        {
            Queue queue(ended);
            Runtime runtime = Runtime::create().value();
            runtime.spawn(work(queue, form));
            REQUIRE(comes_true([&] { return queue.waited >= 2; }));
            runtime = Runtime::create().value();
            CHECK(ended == 0);
        }
        CHECK(ended == 1);
    }
}

TEST_CASE("simulation: concurrent tasks complete when their host crashes") {
    for (const Form form : forms) {
        CAPTURE(form);
        int ended = 0;
        sim::Simulation simulation(1);
        simulation.add("a", [&](Runtime& runtime) {
            auto queue = std::make_shared<Queue>(ended);
            runtime.spawn(work(*queue, form));
            return queue;
        });
        simulation.run_for(10ms);
        simulation.crash("a");
        CHECK(ended == 1);
    }
}

// ---- handlers -----------------------------------------------------------------------------------

struct Waits final : echo::v1::EchoService {
    using Request = echo::v1::EchoRequest;
    using Reply = echo::v1::EchoReply;
    enum class Holds { sleeps, slept, throws };

    explicit Waits(Holds what) : holds(what) {}
    Task<Status> Later(Call& call, const Request&, Reply&) override {
        if (holds == Holds::sleeps) {
            auto sleep = sleep_for(1h);
            co_await gate;
            ended = (co_await sleep).code();
        } else if (holds == Holds::slept) {
            auto sleep = sleep_for(1us);
            (void)co_await sleep;
            co_await gate;
            ended = Code::ok;
        } else {
            call.on_cancel([&call] { call.fail(fail(Code::aborted, "cancelled")); });
            co_await gate;
            ended = Code::ok;
            throw std::runtime_error("after all");
        }
        co_return Status();
    }
    const Holds holds;
    Gate gate;
    Code ended = Code::unknown;
};

TEST_CASE("a handler that awaits an object of the program ends after its runtime") {
    using Holds = Waits::Holds;
    for (const Holds holds : {Holds::sleeps, Holds::slept, Holds::throws}) {
        CAPTURE(static_cast<int>(holds));
        Waits service(holds);
        Status status;
        SimRig rig;
        REQUIRE(rig.add("server").add(service).ok());
        Runtime& client = rig.add("");
        Channel channel = client.connect("sim://server").value();
        echo::v1::EchoClient(channel).Later(
            request_of("x"), {.timeout = 1h},
            [&](const Status& with, const echo::v1::EchoReply&) { status = with; });
        REQUIRE(rig.run_until([&] { return service.gate.waiting != nullptr; }));
        rig.runtimes.erase(rig.runtimes.begin());
        service.gate.release();
        CHECK(service.ended == (holds == Holds::sleeps ? Code::cancelled : Code::ok));
    }
}

TEST_CASE("an answered call may be used after the end of its runtime") {
    Pair pair;
    CallOutcome outcome;
    Call call = pair.hold_one(outcome);
    call.reply({});
    REQUIRE(pair.rig.run_until([&] { return outcome.completions > 0; }));
    pair.rig.runtimes.erase(pair.rig.runtimes.begin());
    Status status;
    call.get({}, 0, Buffer(), [&](const Status& with) { status = with; });
    CHECK(status.code() == Code::cancelled);
    call.abandon_transfer({});
    call.fail(std::make_exception_ptr(std::runtime_error("after all")));
    CHECK(call.reply_bytes_max() == 0);
    CHECK(call.answered());
}

TEST_CASE("a completed sleep may be destroyed on any thread, also in a handler") {
    struct Sleeps final : echo::v1::EchoService {
        Task<Status> Later(Call&, const echo::v1::EchoRequest&, echo::v1::EchoReply& out) override {
            std::unique_ptr<Sleep> sleep(new Sleep(sleep_for(1us)));
            (void)co_await *sleep;
            const auto drop = [&] { sleep.reset(); };
            co_await offload(drop);
            out.set_text("dropped");
            co_return Status();
        }
    } service;
    Runtime runtime = Runtime::create().value();
    const std::string uri = fresh_uri("sm");
    REQUIRE(runtime.serve(service, uri).ok());
    const echo::v1::EchoClient stub(runtime.connect(uri).value());
    const auto ask = [&]() -> Task<std::string> {
        const auto request = request_of("x");
        const auto reply = co_await stub.Later(request);
        co_return reply ? reply->text() : reply.status().to_string();
    };
    CHECK(runtime.block_on(ask()) == "dropped");
}

// ---- block_on() ---------------------------------------------------------------------------------

TEST_CASE("block_on() throws CANCELLED when its runtime ends, whatever its task awaits") {
    for (const bool combined : {false, true}) {
        int ended = 0;
        Queue queue(ended);
        std::optional<Runtime> runtime(Runtime::create().value());
        std::atomic<bool> is_cancelled{false};
        std::thread waiter([&] {
            try {
                if (combined) {
                    runtime->block_on(work(queue, Form::any));
                } else {
                    runtime->block_on(pop(queue));
                }
            } catch (const BadResult& error) {
                is_cancelled = error.status().code() == Code::cancelled;
            }
        });
        REQUIRE(comes_true([&] { return queue.waited >= 1 + combined; }));
        runtime.reset();
        waiter.join();
        CHECK(is_cancelled);
        queue.close();  // The queue has no waiters.
        CHECK(ended == 0);
    }
}

TEST_CASE("simulation: block_on() throws when its host crashes while other hosts run") {
    int ended = 0;
    Queue queue(ended);
    sim::Simulation simulation(1);
    simulation.add("a", [](Runtime&) { return nullptr; });
    simulation.add("b", [](Runtime& runtime) {
        const auto tick = []() -> Task<void> {
            while ((co_await sleep_for(100ms)).ok()) {
            }
        };
        runtime.spawn(tick());
        return nullptr;
    });
    simulation.in(1s, [&] { simulation.crash("a"); });
    CHECK_THROWS_AS(simulation.runtime("a")->block_on(pop(queue)), BadResult);
}

// ---- endless retries ----------------------------------------------------------------------------

enum class Again { call, transfer, collective, barrier, timed };
constexpr Again agains[] = {Again::call, Again::transfer, Again::collective, Again::barrier,
                            Again::timed};

struct Peer {
    Channel channel;
    Group group;
    Buffer buffer;
};

Task<void> one_call(Channel channel) {
    const auto request = request_of("x");
    (void)co_await echo::v1::EchoClient(channel).Now(request, {.timeout = 100ms});
}

// Returns whether the attempt succeeded, which it never does.
Task<bool> attempt(const Peer& peer, Again again) {
    if (again == Again::call) {
        const auto request = request_of("x");
        co_return (co_await echo::v1::EchoClient(peer.channel).Now(request, {.timeout = 100ms}))
            .ok();
    }
    if (again == Again::transfer) {
        co_return (co_await weft::get(peer.channel, RegionRef(), 0, peer.buffer)).ok();
    }
    if (again == Again::barrier) {
        co_return (co_await barrier(peer.group, "x", {.timeout = 100ms})).ok();
    }
    if (again == Again::timed) {
        co_return (co_await with_timeout(1s, one_call(peer.channel))).ok();
    }
    const echo::v1::EchoRequestText request;
    co_return (
        co_await echo::v1::EchoGroupClient(peer.group).Everywhere(request, {.timeout = 100ms}))
        .status()
        .ok();
}

Task<void> again_and_again(const Peer& peer, Again again, Gate* gate, std::atomic<int>& rounds,
                           int& alive) {
    const Alive counted(alive);
    if (gate) co_await *gate;
    do {
        ++rounds;
        (void)co_await attempt(peer, again);
    } while (true);
}

Peer peer_of(Runtime& runtime, const std::string& uri, Runtime& memory) {
    const GroupView view = GroupView::make("late", 1, {{0, {uri}}}).value();
    return {runtime.connect(uri).value(), runtime.group(view).value(), memory.allocate(64).value()};
}

TEST_CASE("a task that retries through another runtime for ever ends with its own runtime") {
    for (const Again again : agains) {
        CAPTURE(static_cast<int>(again));
        int alive = 0;
        std::atomic<int> rounds{0};
        EchoServer service;
        Runtime other = Runtime::create().value();
        const std::string uri = fresh_uri("sm");
        REQUIRE(other.serve(service, uri).ok());
        {
            Runtime own = Runtime::create().value();
            const Peer peer = peer_of(other, uri, own);
            own.spawn(again_and_again(peer, again, nullptr, rounds, alive));
            REQUIRE(comes_true([&] { return rounds > 1; }));
            own = Runtime::create().value();
        }
        CHECK(alive == 0);
    }
}

TEST_CASE("simulation: a task that retries for ever ends with its host, also when resumed late") {
    for (const Again again : agains) {
        for (const bool late : {false, true}) {
            CAPTURE(static_cast<int>(again), late);
            int alive = 0;
            std::atomic<int> rounds{0};
            EchoServer service;
            Gate gate;
            Peer peer;
            sim::Simulation simulation(1);
            simulation.add("b", [&](Runtime& runtime) {
                REQUIRE(runtime.serve(service, "sim://b").ok());
                return nullptr;
            });
            simulation.add("a", [&](Runtime& runtime) {
                peer = peer_of(late ? runtime : *simulation.runtime("b"), "sim://b", runtime);
                runtime.spawn(again_and_again(peer, again, late ? &gate : nullptr, rounds, alive));
                return nullptr;
            });
            simulation.run_for(10ms);
            simulation.crash("a");
            if (late) {
                REQUIRE(gate.waiting);
                peer.channel.executor().post([&] { gate.release(); });
            }
            CHECK(rounds > 0);
            CHECK(alive == 0);
            peer = Peer();
        }
    }
}

// Retries through another runtime until an attempt succeeds, which never happens.
struct Stubborn final : echo::v1::EchoService {
    using Request = echo::v1::EchoRequest;
    using Reply = echo::v1::EchoReply;
    explicit Stubborn(Again how) : again(how) {}
    Status Now(Call&, const Request& in, Reply& out) override {
        out.set_text(in.text());
        return {};
    }
    Task<Status> Later(Call&, const Request&, Reply&) override {
        for (bool is_well = false; !is_well; ++rounds) is_well = co_await attempt(through, again);
        co_return Status();
    }
    const Again again;
    Peer through;
    int rounds = 0;
};

TEST_CASE("a handler that retries through another runtime does not block its server") {
    for (const Again again : {Again::call, Again::transfer, Again::collective, Again::barrier}) {
        CAPTURE(static_cast<int>(again));
        Stubborn service(again);
        Runtime server = Runtime::create().value();
        Runtime other = Runtime::create().value();
        Runtime client = Runtime::create().value();
        const std::string uri = fresh_uri("sm");
        service.through = peer_of(other, uri + "-unserved", server);
        REQUIRE(server.serve(service, uri).ok());
        const echo::v1::EchoClient stub(client.connect(uri).value());
        const auto ask = [&]() -> Task<Status> {
            const auto request = request_of("x");
            const auto held = co_await stub.Later(request, {.timeout = 50ms});
            if (held) co_return fail(Code::internal, "it went well");
            co_return (co_await stub.Now(request)).status();
        };
        CHECK(client.block_on(ask()).to_string() == "OK");
        server = Runtime::create().value();
        CHECK(service.rounds > 0);
        service.through = Peer();
    }
}

}  // namespace after_end_test
