// Operations that a handler starts are part of its call: no later deadline, cancelled with it.
#include <stop_token>

#include <weft/await.h>
#include <weft/offload.h>

#include "support/raw_echo.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId relay("test.Front/Relay");

// The test sets the handler.
struct Front : Service {
    Function<void(Call)> handle;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(relay, [this](Call call) { handle(std::move(call)); });
    }
};

// A client, a server in the middle, and the server that the middle one calls.
struct Chain {
    Front front;
    Echo back;
    SimRig rig;
    Runtime& middle = rig.add("middle");
    Runtime& client = rig.add("");
    Runtime& server = rig.add("back");
    Channel channel, onward;
    CallOutcome outer, inner, next;
    Call open;  // The call of `front` while it waits.

    Chain() {
        REQUIRE(middle.add(front).ok());
        REQUIRE(server.add(back).ok());
        channel = client.connect("sim://middle").value();
        onward = middle.connect("sim://back").value();
        back.hold = true;
    }
    ~Chain() {
        open = {};
        back.held.clear();
        rig.run_for(1ms);
        CHECK(node_of(client).client.is_balanced());
        CHECK(node_of(middle).client.is_balanced());
    }
    // Sets a handler that calls the server behind, and waits.
    void ask(CallOptions options = {}) {
        front.handle = [this, options](Call call) {
            open = std::move(call);
            onward.call(echo_method, as_bytes("on"), options, inner.done());
        };
    }
    OperationId start(Duration timeout = 10s) {
        return channel.call(relay, as_bytes("go"), {.timeout = timeout}, outer.done());
    }
    void run_until_held(std::size_t calls = 1) {
        REQUIRE(rig.run_until([&] { return back.held.size() == calls; }));
    }
    void run_until_done(const CallOutcome& outcome) {
        REQUIRE(rig.run_until([&] { return outcome.completions > 0; }));
    }
};

}  // namespace

// Whatever effect the server behind reports: the handler in front has run.
TEST_CASE("a call has effect applied when its handler fails it with a forwarded status") {
    const bool rejects = GENERATE(false, true);
    const auto passed_on = [&](const Status& status) {
        return rejects ? rejected(status) : status;
    };
    Chain chain;
    SECTION("of a call") {
        chain.back.hold = true;
        chain.front.handle = [&](Call call) {
            chain.open = std::move(call);
            chain.onward.call(echo_method, as_bytes("on"), {}, [&](const Status& status, ByteView) {
                CHECK(status.effect() == Effect::none);
                chain.open.fail(passed_on(status));
            });
        };
        chain.start();
        chain.run_until_held();
        chain.back.held.front().fail(rejected(Code::aborted, "nothing was done there"));
    }
    SECTION("of a transfer") {
        const Buffer local = chain.middle.allocate(8).value();
        chain.front.handle = [&, local](Call call) {
            chain.open = std::move(call);
            RegionRef nowhere;
            nowhere.access = Access::read;
            nowhere.length = 8;
            chain.open.get(nowhere, 0, local, [&](const Status& status) {
                CHECK(status.effect() == Effect::none);
                chain.open.fail(passed_on(status));
            });
        };
        chain.start();
    }
    chain.run_until_done(chain.outer);
    INFO(chain.outer.status.to_string());
    CHECK_FALSE(chain.outer.status.ok());
    CHECK(chain.outer.status.effect() == Effect::applied);
}

TEST_CASE("nested: a nested call has no later deadline than the handler's call") {
    Chain chain;
    chain.ask();
    chain.start(50ms);
    chain.run_until_held();
    // The remaining time is rounded up to microseconds at each hop.
    CHECK(chain.back.held[0].deadline() <= chain.open.deadline() + 1ms);
    chain.run_until_done(chain.inner);
    CHECK((chain.inner.status.code() == Code::deadline_exceeded ||
           chain.inner.status.code() == Code::cancelled));
    CHECK(chain.outer.completions <= 1);
    chain.rig.run_for(1ms);
    CHECK(chain.back.held[0].cancelled());
}

TEST_CASE("nested: a nested call keeps a deadline that is earlier than the handler's") {
    Chain chain;
    chain.ask({.timeout = 10ms});
    chain.start();
    chain.run_until_done(chain.inner);
    CHECK(chain.inner.status.code() == Code::deadline_exceeded);
    CHECK(!chain.open.cancelled());
}

TEST_CASE("nested: a cancel reaches the calls that the handler made") {
    Chain chain;
    chain.ask();
    const OperationId id = chain.start();
    chain.run_until_held();
    chain.channel.cancel_call(id);
    chain.run_until_done(chain.inner);
    CHECK(chain.inner.status.code() == Code::cancelled);
    chain.rig.run_for(1ms);
    CHECK(chain.back.held[0].cancelled());
    SECTION("and later calls of the handler end at once, effect none") {
        chain.front.handle = nullptr;
        CallOutcome late;
        // The second call is made in a completion, which is a part of the call as well.
        chain.front.handle = [&](Call call) {
            chain.open = std::move(call);
            chain.onward.call(echo_method, as_bytes("1"), {}, [&](const Status&, ByteView) {
                chain.onward.call(echo_method, as_bytes("2"), {}, late.done());
            });
        };
        chain.open = {};
        const OperationId again = chain.start();
        chain.run_until_held(2);
        chain.channel.cancel_call(again);
        chain.run_until_done(late);
        CHECK(late.status.code() == Code::cancelled);
        CHECK(late.status.effect() == Effect::none);
        CHECK(chain.back.handled == 2);
    }
}

TEST_CASE("nested: calls that a completion makes are part of the handler's call, too") {
    Chain chain;
    chain.back.hold = false;
    chain.front.handle = [&](Call call) {
        chain.open = std::move(call);
        chain.onward.call(echo_method, as_bytes("1"), {}, [&](const Status&, ByteView) {
            chain.back.hold = true;
            chain.onward.call(echo_method, as_bytes("2"), {}, chain.next.done());
        });
    };
    const OperationId id = chain.start();
    chain.run_until_held();
    chain.channel.cancel_call(id);
    chain.run_until_done(chain.next);
    CHECK(chain.next.status.code() == Code::cancelled);
}

TEST_CASE("nested: a detached call continues when the handler's call is cancelled") {
    Chain chain;
    chain.ask({.detached = true});
    const OperationId id = chain.start(50ms);
    chain.run_until_held();
    CHECK(chain.back.held[0].deadline() > chain.open.deadline());
    chain.channel.cancel_call(id);
    chain.rig.run_for(100ms);
    CHECK(chain.open.cancelled());
    CHECK(chain.inner.completions == 0);
    chain.back.held[0].reply(as_bytes("well"));
    chain.run_until_done(chain.inner);
    CHECK(chain.inner.reply == "well");
}

TEST_CASE("nested: a nested call continues after the handler has replied") {
    Chain chain;
    chain.front.handle = [&](Call call) {
        chain.onward.call(echo_method, as_bytes("on"), {}, chain.inner.done());
        call.reply({});
        // No longer part of a call.
        chain.onward.call(echo_method, as_bytes("after"), {}, chain.next.done());
    };
    const OperationId id = chain.start(50ms);
    chain.run_until_held(2);
    chain.channel.cancel_call(id);
    chain.rig.run_for(1ms);
    CHECK(chain.outer.completions == 1);
    CHECK(!chain.back.held[0].cancelled());
    CHECK(chain.back.held[1].deadline() > chain.back.held[0].deadline());
    for (Call& call : chain.back.held) call.reply({});
    chain.run_until_done(chain.inner);
    chain.run_until_done(chain.next);
    CHECK(chain.inner.status.ok());
    CHECK(chain.next.status.ok());
}

TEST_CASE("nested: a call that is abandoned leaves its scope") {
    Chain chain;
    OperationId nested;
    chain.front.handle = [&](Call call) {
        chain.open = std::move(call);
        nested = chain.onward.call(echo_method, as_bytes("on"), {}, chain.inner.done());
    };
    const OperationId id = chain.start();
    chain.run_until_held();
    chain.onward.abandon_call(nested);
    chain.rig.run_for(1ms);
    chain.channel.cancel_call(id);
    chain.rig.run_for(1ms);
    CHECK(chain.inner.completions == 0);
    CHECK(chain.back.held[0].cancelled());
}

TEST_CASE("nested: a cancel reaches only the nested calls of its own handler") {
    Chain chain;
    std::vector<Call> open;
    std::vector<CallOutcome> inner(2);
    chain.front.handle = [&](Call call) {
        open.push_back(std::move(call));
        chain.onward.call(echo_method, as_bytes("on"), {}, inner[open.size() - 1].done());
    };
    const OperationId first = chain.start();
    CallOutcome second;
    chain.channel.call(relay, as_bytes("go"), {}, second.done());
    chain.run_until_held(2);
    chain.channel.cancel_call(first);
    chain.rig.run_for(1ms);
    CHECK(inner[0].completions + inner[1].completions == 1);
    // A reply ends only the scope of its own call.
    open[0].reply({});
    open[1].reply({});
    chain.run_until_done(second);
    CHECK(second.status.ok());
    chain.back.held.clear();
    chain.run_until_done(inner[0]);
    chain.run_until_done(inner[1]);
}

TEST_CASE("nested: only the outermost caller retries") {
    Echo full;
    Chain chain;
    full.hold = true;
    REQUIRE(chain.rig.add("full", {.handlers_max = 1}).add(full).ok());
    Channel to_full = chain.middle.connect("sim://full").value();
    CallOutcome taken;
    to_full.call(echo_method, {}, {}, taken.done());
    REQUIRE(chain.rig.run_until([&] { return full.held.size() == 1; }));
    chain.front.handle = [&](Call call) {
        chain.open = std::move(call);
        to_full.call(echo_method, as_bytes("on"), {}, chain.inner.done());
    };
    chain.start();
    chain.run_until_done(chain.inner);
    CHECK(chain.inner.status.code() == Code::resource_exhausted);
    CHECK(node_of(chain.middle).client.counters().retried == 0);
    full.held.clear();
    chain.run_until_done(taken);
}

TEST_CASE("nested: transfers end with the call") {
    Chain chain;
    Buffer far = chain.server.allocate(4096).value();
    const Region region = chain.server.expose(far, {.access = Access::read}).value();
    const RegionRef ref = region.ref();
    Buffer local = chain.middle.allocate(4096).value();
    std::vector<Code> ends;
    chain.front.handle = [&](Call call) {
        chain.open = std::move(call);
        chain.rig.world->kill("back");
        chain.onward.get(ref, 0, local, {}, [&](const Status& status) {
            ends.push_back(status.code());
            chain.onward.get(ref, 0, local, {},
                             [&](const Status& then) { ends.push_back(then.code()); });
        });
    };
    const OperationId id = chain.start();
    REQUIRE(chain.rig.run_until([&] { return bool(chain.open.deadline() != never); }));
    chain.channel.cancel_call(id);
    REQUIRE(chain.rig.run_until([&] { return ends.size() == 2; }));
    CHECK(ends == std::vector<Code>{Code::cancelled, Code::cancelled});
}

TEST_CASE("nested: servers that call each other in handlers do not deadlock") {
    // More calls than slots both ways; each handler waits for the other server.
    constexpr std::size_t calls = 3000;
    Echo one, two;
    struct Side : Front {
        Channel other;
        std::vector<CallOutcome> outcomes = std::vector<CallOutcome>(calls);
    } left, right;
    SimRig rig;
    Runtime& at_left = rig.add("left");
    Runtime& at_right = rig.add("right");
    REQUIRE(at_left.add(left).ok());
    REQUIRE(at_left.add(one).ok());
    REQUIRE(at_right.add(right).ok());
    REQUIRE(at_right.add(two).ok());
    left.other = at_left.connect("sim://right").value();
    right.other = at_right.connect("sim://left").value();
    for (Side* side : {&left, &right}) {
        side->handle = [side](Call call) {
            side->other.call(echo_method, as_bytes("back"), {},
                             [call = std::move(call)](const Status& status, ByteView) mutable {
                                 status.ok() ? call.reply({}) : call.fail(status);
                             });
        };
        for (CallOutcome& outcome : side->outcomes) {
            side->other.call(relay, as_bytes("go"), {.timeout = 10s}, outcome.done());
        }
    }
    const auto all_done = [&](const Side& side) {
        return std::all_of(side.outcomes.begin(), side.outcomes.end(),
                           [](const CallOutcome& outcome) { return outcome.completions == 1; });
    };
    REQUIRE(rig.run_until([&] { return all_done(left) && all_done(right); }, 5s));
    for (Side* side : {&left, &right}) {
        for (const CallOutcome& outcome : side->outcomes) REQUIRE(outcome.status.ok());
    }
}

TEST_CASE("nested: a call that reaches a server twice does not deadlock") {
    // From the left to the right, back, and to the right again: more calls than slots. The server
    // withdraws half of the slots meanwhile.
    struct Side : Front {
        Channel other;
    } left, right;
    SimRig rig;
    Runtime& at_left = rig.add("left");
    Runtime& at_right = rig.add("right");
    REQUIRE(at_left.add(left).ok());
    REQUIRE(at_right.add(right).ok());
    left.other = at_left.connect("sim://right").value();
    right.other = at_right.connect("sim://left").value();
    for (Side* side : {&left, &right}) {
        side->handle = [side](Call call) {
            const auto hops = std::to_integer<std::uint8_t>(call.request()[0]);
            if (hops == 0) return call.reply({});
            const std::byte left_over{static_cast<std::uint8_t>(hops - 1)};
            side->other.call(relay, {&left_over, 1}, {},
                             [call = std::move(call)](const Status& status, ByteView) mutable {
                                 status.ok() ? call.reply({}) : call.fail(status);
                             });
        };
    }
    std::vector<CallOutcome> outcomes(3000);
    const std::byte hops{2};
    for (CallOutcome& outcome : outcomes) {
        left.other.call(relay, {&hops, 1}, {.timeout = 10s}, outcome.done());
    }
    rig.run_for(20us);
    node_of(at_right).server.on_backlog();
    REQUIRE(rig.run_until(
        [&] {
            return std::all_of(outcomes.begin(), outcomes.end(),
                               [](const CallOutcome& outcome) { return outcome.completions == 1; });
        },
        11s));
    for (const CallOutcome& outcome : outcomes) REQUIRE(outcome.status.ok());
}

namespace {

Task<> asks_after_work(Chain& chain, Call call) {
    auto work = [] {};
    co_await offload(work);
    chain.inner.status = (co_await weft::call(chain.onward, echo_method, as_bytes("on"))).status();
    chain.inner.completions = 1;
    call.reply({});
}

Task<> asks_from_elsewhere(Chain& chain, Channel channel, Call call) {
    chain.inner.status = (co_await weft::call(channel, echo_method, as_bytes("on"))).status();
    chain.next.status = (co_await weft::call(channel, echo_method, as_bytes("then"))).status();
    chain.inner.completions = 1;
    call.reply({});
}

}  // namespace

TEST_CASE("nested: a coroutine stays with its call across offload()") {
    Chain chain;
    chain.front.handle = [&](Call call) {
        detail::run_detached(asks_after_work(chain, std::move(call)), [] {});
    };
    const OperationId id = chain.start(50ms);
    chain.run_until_held();
    CHECK(chain.back.held[0].time_left() <= 50ms);
    chain.channel.cancel_call(id);
    chain.run_until_done(chain.inner);
    CHECK(chain.inner.status.code() == Code::cancelled);
}

TEST_CASE("nested: a call through another runtime ends with the handler's call") {
    Chain chain;
    Runtime& other = chain.rig.add("");
    Channel through = other.connect("sim://back").value();
    chain.front.handle = [&](Call call) {
        detail::run_detached(asks_from_elsewhere(chain, through, std::move(call)), [] {});
    };
    const OperationId id = chain.start(50ms);
    chain.run_until_held();
    CHECK(chain.back.held[0].time_left() <= 50ms);
    chain.channel.cancel_call(id);
    chain.run_until_done(chain.inner);
    CHECK(chain.inner.status.code() == Code::cancelled);
    CHECK(chain.next.status.code() == Code::cancelled);
    CHECK(chain.next.status.effect() == Effect::none);
}

TEST_CASE("nested: a handler's call through another runtime of its thread inherits its deadline") {
    Chain chain;
    Runtime& other = chain.rig.add("");
    Channel through = other.connect("sim://back").value();
    const bool detached = GENERATE(false, true);
    chain.front.handle = [&](Call call) {
        chain.open = std::move(call);
        through.call(echo_method, as_bytes("on"), {.timeout = 30s, .detached = detached},
                     chain.inner.done());
    };
    chain.start(2s);
    chain.run_until_held();
    CHECK((chain.back.held[0].time_left() <= 2s) != detached);
    chain.open.reply({});
}

TEST_CASE("nested: a stop token reports the cancel of its call") {
    Chain chain;
    std::stop_token early, late;
    chain.front.handle = [&](Call call) {
        early = call.stop_token();
        chain.open = std::move(call);
    };
    const OperationId id = chain.start();
    REQUIRE(chain.rig.run_until([&] { return early.stop_possible(); }));
    CHECK(!early.stop_requested());
    // A stop callback may reply to the call.
    const std::stop_callback answers(early, [&] { chain.open.reply({}); });
    bool noticed = false;
    chain.open.on_cancel([&] { noticed = true; });
    chain.channel.cancel_call(id);
    REQUIRE(chain.rig.run_until([&] { return early.stop_requested(); }));
    CHECK(chain.open.answered());
    CHECK(!noticed);
    CHECK(!chain.open.stop_token().stop_possible());
    chain.run_until_done(chain.outer);

    CallOutcome again;
    const OperationId other = chain.channel.call(relay, {}, {}, again.done());
    REQUIRE(chain.rig.run_until([&] { return !chain.open.answered(); }));
    chain.channel.cancel_call(other);
    REQUIRE(chain.rig.run_until([&] { return chain.open.cancelled(); }));
    late = chain.open.stop_token();
    CHECK(late.stop_requested());
    const std::stop_token answered = late;
    chain.open.reply({});
    chain.run_until_done(again);
    CHECK(again.status.code() == Code::cancelled);
}
