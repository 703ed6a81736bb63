// Use of the library on the wrong thread: either the program ends at once, with an error text that
// names the call and the remedy, or the use works. Each runs in a child process because most end
// it.
#include <unistd.h>

#include <coroutine>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <weft/await.h>
#include <weft/combine.h>
#include <weft/protobuf_group.h>
#include <weft/sleep.h>

#include "support/child.h"
#include "support/gate.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

namespace weft::misuse_thread_test {
namespace {

using namespace weft::test;

Runtime by_hand() { return Runtime::create({.log_level = LogLevel::off, .manual = true}).value(); }
Runtime with_thread() { return Runtime::create({.log_level = LogLevel::off}).value(); }

void on_another_thread(const std::function<void()>& body) { std::thread(body).join(); }

Task<int> seven() { co_return 7; }

TEST_CASE("turning a runtime that has a thread of its own ends the program with an error text") {
    const Mistake mistakes[] = {
        {"turn", [] { with_thread().turn(); }, {"Runtime::turn()", "RuntimeOptions::manual"}},
        {"next_deadline",
         [] { with_thread().next_deadline(); },
         {"Runtime::next_deadline()", "RuntimeOptions::manual"}},
        {"wait_fd",
         [] { with_thread().wait_fd(); },
         {"Runtime::wait_fd()", "RuntimeOptions::manual"}},
        {"turn in a callback",
         [] {
             Runtime runtime = with_thread();
             std::promise<void> never_set;
             runtime.executor().post([&] { runtime.turn(); });
             never_set.get_future().wait();
         },
         {"Runtime::turn()", "callback"}},
        {"turn in offloaded work",
         [] {
             Runtime runtime = with_thread();
             std::promise<void> never_set;
             runtime.executor().offload([&] { runtime.turn(); });
             never_set.get_future().wait();
         },
         {"Runtime::turn()", "offload"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

// In a turn of `inner`, which a callback of `outer` turns.
void inside_both(const std::function<void(Runtime& outer, Runtime& inner)>& body) {
    Runtime outer = by_hand();
    Runtime inner = by_hand();
    inner.executor().post([&] { body(outer, inner); });
    outer.executor().post([&] { inner.turn(); });
    outer.turn();
}

TEST_CASE("turning a runtime inside its turn ends the program, also with another turn between") {
    const Mistake mistakes[] = {
        {"turn",
         [] { inside_both([](Runtime& outer, Runtime&) { outer.turn(); }); },
         {"Runtime::turn()", "callback"}},
        {"turn_until",
         [] {
             inside_both(
                 [](Runtime& outer, Runtime&) { outer.turn_until([] { return true; }, 1s); });
         },
         {"Runtime::turn_until()", "callback"}},
        {"block_on",
         [] { inside_both([](Runtime& outer, Runtime&) { outer.block_on(seven()); }); },
         {"Runtime::block_on()", "callback"}},
        {"the end",
         [] { inside_both([](Runtime& outer, Runtime&) { outer = by_hand(); }); },
         {"Runtime::~Runtime()", "callback"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("a handler may turn another runtime that is turned manually") {
    Runtime outer = by_hand();
    Runtime inner = by_hand();
    int blocked_on = 0;
    Executor* within = nullptr;
    Executor* after = nullptr;
    outer.executor().post([&] {
        inner.executor().post([&] { within = Executor::current(); });
        inner.turn();
        blocked_on = inner.block_on(seven());
        after = Executor::current();
    });
    outer.turn();
    CHECK(blocked_on == 7);
    CHECK(within == &inner.executor());
    CHECK(after == &outer.executor());
    CHECK(Executor::current() == nullptr);
}

TEST_CASE("driving a runtime from a second thread without turn() first ends the program") {
    const auto mistake = [](const char* name, const std::function<void(Runtime&)>& body) {
        check({name,
               [&body] {
                   Runtime runtime = by_hand();
                   runtime.turn();
                   on_another_thread([&] { body(runtime); });
               },
               {name, "turn() first"}});
    };
    mistake("Runtime::arm()", [](Runtime& runtime) { runtime.arm(); });
    mistake("Runtime::next_deadline()", [](Runtime& runtime) { runtime.next_deadline(); });

    // A second thread that turns the runtime first may drive it.
    Runtime runtime = by_hand();
    runtime.turn();
    on_another_thread([&] {
        while (runtime.turn() > 0 || !runtime.arm()) {
        }
        CHECK(runtime.next_deadline() > TimePoint());
    });
}

// ---- operations --------------------------------------------------------------------------------

// A runtime that is turned manually on this thread, with a channel and a group that reach no
// server.
struct Bench {
    Runtime runtime = by_hand();
    Channel channel = runtime.connect("sm://absent").value();
    Group group =
        runtime.group(GroupView::make("absent", 1, {{0, {"sm://absent"}}}).value()).value();
    Buffer memory = runtime.allocate(64).value();

    Bench() { runtime.turn(); }
    template <class Body>
    void in_turn(Body body) {
        runtime.executor().post(body);
        runtime.turn();
    }
};

// One call, held by its service.
struct HeldCall {
    Echo service;
    CallOutcome outcome;
    Runtime runtime = by_hand();
    Channel channel;
    HeldCall() {
        service.hold = true;
        const std::string uri = "sm://misuse-thread-" + std::to_string(::getpid());
        REQUIRE(runtime.serve(service, uri).ok());
        channel = runtime.connect(uri).value();
        channel.call(echo_method, {}, {}, outcome.done());
        REQUIRE(runtime.turn_until([&] { return !service.held.empty(); }, test_timeout));
    }
    ~HeldCall() { service.held.clear(); }
};

Task<int> wait_at(Gate& gate) {
    co_await gate;
    co_return 1;
}
Task<void> await_stored(std::optional<Task<int>>& kept) { (void)co_await *kept; }

template <class Operation>
void drop_elsewhere(std::unique_ptr<Operation>& operation) {
    on_another_thread([&] { operation.reset(); });
}

TEST_CASE("destroying a pending operation on another thread ends the program") {
    const Mistake mistakes[] = {
        {"a call",
         [] {
             Bench bench;
             std::unique_ptr<CallOperation> made(
                 new CallOperation(call(bench.channel, echo_method, {})));
             drop_elsewhere(made);
         },
         {"CallOperation", "Executor::post()"}},
        {"a transfer",
         [] {
             Bench bench;
             std::unique_ptr<TransferOperation> made(
                 new TransferOperation(get(bench.channel, {}, 0, bench.memory)));
             drop_elsewhere(made);
         },
         {"TransferOperation", "Executor::post()"}},
        {"a transfer of a call",
         [] {
             HeldCall held;
             const Buffer memory = held.runtime.allocate(64).value();
             std::unique_ptr<TransferOperation> made(
                 new TransferOperation(get(held.service.held.front(), {}, 0, memory)));
             drop_elsewhere(made);
         },
         {"transfer", "Executor::post()"}},
        {"a sleep",
         [] {
             Bench bench;
             std::unique_ptr<Sleep> made;
             bench.in_turn([&] { made.reset(new Sleep(sleep_for(1h))); });
             drop_elsewhere(made);
         },
         {"sleep_for()", "Executor::post()"}},
        {"a task that waits for the program's own, and that another one awaits",
         [] {
             Bench bench;
             Gate gate;
             std::optional<Task<int>> kept;
             bench.in_turn([&] {
                 kept.emplace(wait_at(gate));
                 bench.runtime.spawn(await_stored(kept));
             });
             bench.runtime.turn();
             on_another_thread([&] { kept.reset(); });
         },
         {"weft::Task", "Executor::post()"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("destroying a pending collective or foreign operation on another thread aborts, too") {
    const Mistake mistakes[] = {
        {"a collective",
         [] {
             Bench bench;
             std::unique_ptr<GroupCall<Status>> made(
                 new GroupCall<Status>(barrier(bench.group, "all")));
             drop_elsewhere(made);
         },
         {"GroupCall", "Executor::post()"}},
        {"a collective of another runtime",
         [] {
             Bench bench, other;
             std::unique_ptr<GroupCall<Status>> made;
             bench.in_turn([&] { made.reset(new GroupCall<Status>(barrier(other.group, "all"))); });
             drop_elsewhere(made);
         },
         {"another runtime", "Executor::post()"}},
        {"a call of another runtime",
         [] {
             Bench bench, other;
             std::unique_ptr<CallOperation> made;
             bench.in_turn(
                 [&] { made.reset(new CallOperation(call(other.channel, echo_method, {}))); });
             drop_elsewhere(made);
         },
         {"another runtime", "Executor::post()"}},
        {"Channel::abandon_call()",
         [] {
             Bench bench;
             const OperationId id =
                 bench.channel.call(echo_method, {}, {}, [](const Status&, ByteView) {});
             on_another_thread([&] { bench.channel.abandon_call(id); });
         },
         {"Channel::abandon_call()", "Executor::post()"}},
        {"Channel::abandon_transfer()",
         [] {
             Bench bench;
             const OperationId id =
                 bench.channel.get({}, 0, bench.memory, {}, [](const Status&) {});
             on_another_thread([&] { bench.channel.abandon_transfer(id); });
         },
         {"Channel::abandon_transfer()", "Executor::post()"}},
    };
    for (const Mistake& mistake : mistakes) check(mistake);
}

TEST_CASE("an operation that has completed may be destroyed on any thread") {
    Bench bench;
    std::unique_ptr<CallOperation> made_call(
        new CallOperation(call(bench.channel, echo_method, {}, {.timeout = 1ms})));
    std::unique_ptr<TransferOperation> made_transfer(
        new TransferOperation(get(bench.channel, {}, 0, bench.memory, {.timeout = 1ms})));
    std::unique_ptr<Sleep> made_sleep;
    std::unique_ptr<GroupCall<Status>> made_group(
        new GroupCall<Status>(barrier(bench.group, "all", {.timeout = 1ms})));
    bench.in_turn([&] { made_sleep.reset(new Sleep(sleep_for(1ms))); });
    REQUIRE(bench.runtime.turn_until(
        [&] {
            return made_call->await_ready() && made_transfer->await_ready() &&
                   made_sleep->await_ready() && made_group->await_ready();
        },
        test_timeout));
    drop_elsewhere(made_call);
    drop_elsewhere(made_transfer);
    drop_elsewhere(made_sleep);
    drop_elsewhere(made_group);
}

TEST_CASE("an operation may be destroyed on any thread when its runtime has ended") {
    std::unique_ptr<CallOperation> made_call;
    std::unique_ptr<Sleep> made_sleep;
    {
        Bench bench;
        made_call.reset(new CallOperation(call(bench.channel, echo_method, {})));
        bench.in_turn([&] { made_sleep.reset(new Sleep(sleep_for(1h))); });
    }
    drop_elsewhere(made_call);
    drop_elsewhere(made_sleep);
}

TEST_CASE("a call or transfer is cancelled from any thread") {
    Bench bench;
    Status called, got;
    int completions = 0;
    const OperationId call_id =
        bench.channel.call(echo_method, {}, {}, [&](const Status& status, ByteView) {
            called = status;
            ++completions;
        });
    const OperationId transfer_id =
        bench.channel.get({}, 0, bench.memory, {.timeout = 1h}, [&](const Status& status) {
            got = status;
            ++completions;
        });
    on_another_thread([&] {
        bench.channel.cancel_call(call_id);
        bench.channel.cancel_transfer(transfer_id);
    });
    CHECK(completions == 0);  // They run in a later turn, on the thread that turns.
    REQUIRE(bench.runtime.turn_until([&] { return completions == 2; }, test_timeout));
    CHECK(called.code() == Code::cancelled);
    CHECK_FALSE(got.ok());  // It may have failed before: the region does not exist.
}

TEST_CASE("reading the changing state of a call on another thread ends the program") {
    const auto mistake = [](const char* name, const std::function<void(const Call&)>& body) {
        check({name,
               [&body] {
                   HeldCall held;
                   on_another_thread([&] { body(held.service.held.front()); });
               },
               {name, "Executor::post()"}});
    };
    mistake("Call::cancelled()", [](const Call& call) { (void)call.cancelled(); });
    mistake("Call::draining()", [](const Call& call) { (void)call.draining(); });
    mistake("Call::peer()", [](const Call& call) { (void)call.peer(); });
    mistake("Call::client()", [](const Call& call) { (void)call.client(); });
    mistake("Call::abandon_transfer()", [](const Call& call) { call.abandon_transfer({}); });
}

// ---- combined tasks ----------------------------------------------------------------------------

// Resumes the coroutine on a thread of its own once its context has left it, which an awaitable of
// a program must not do.
struct ByThread {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
        Executor* const home = Executor::current();
        std::thread([home, awaiting] {
            std::promise<void> left;
            home->post([&left] { left.set_value(); });
            left.get_future().wait();
            awaiting.resume();
        }).detach();
    }
    void await_resume() const {}
};

// Resumes the coroutine in a turn of its context, which another thread posts.
struct ByPost {
    bool await_ready() const { return false; }
    void await_suspend(std::coroutine_handle<> awaiting) {
        Executor* const home = Executor::current();
        std::thread([home, awaiting] { home->post([awaiting] { awaiting.resume(); }); }).detach();
    }
    void await_resume() const {}
};

template <class Awaitable>
Task<int> seven_after() {
    co_await Awaitable();
    co_return 7;
}
template <class Awaitable>
Task<int> seven_inside() {
    co_return co_await seven_after<Awaitable>();
}
Task<int> seven_later() {
    (void)co_await sleep_for(1h);
    co_return 7;
}

TEST_CASE("a combined task that ends on another thread ends the program with an error text") {
    const auto mistake = [](const char* name, const std::function<void(Runtime&)>& body) {
        check({name,
               [&body] {
                   Runtime runtime = with_thread();
                   body(runtime);
               },
               {name, "a task of it ended on a thread", "Executor::post()"}});
    };
    mistake("when_all()", [](Runtime& runtime) {
        (void)runtime.block_on(when_all(seven(), seven_after<ByThread>()));
    });
    mistake("when_all()", [](Runtime& runtime) {  // A task that is not the last.
        (void)runtime.block_on(when_all(seven_later(), seven_inside<ByThread>()));
    });
    mistake("when_all()", [](Runtime& runtime) {
        std::vector<Task<int>> tasks;
        tasks.push_back(seven_after<ByThread>());
        (void)runtime.block_on(when_all(std::move(tasks)));
    });
    mistake("when_any()", [](Runtime& runtime) {
        (void)runtime.block_on(when_any(seven_later(), seven_after<ByThread>()));
    });
    mistake("with_timeout()", [](Runtime& runtime) {
        (void)runtime.block_on(with_timeout(1h, seven_inside<ByThread>()));
    });
}

TEST_CASE("a combined task that another thread resumes by Executor::post() ends like any other") {
    Runtime runtime = with_thread();
    const auto all = runtime.block_on(when_all(seven_after<ByPost>(), seven_inside<ByPost>()));
    CHECK(all.get<0>() + all.get<1>() == 14);
    CHECK(runtime.block_on(with_timeout(1h, seven_after<ByPost>())).value() == 7);
}

}  // namespace
}  // namespace weft::misuse_thread_test
