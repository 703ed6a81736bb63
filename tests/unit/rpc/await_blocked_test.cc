// Operations that a coroutine awaits through another runtime while the thread of that runtime is
// blocked: they end by their deadline and with their call, on the clock of the awaiting runtime.
#include <unistd.h>

#include <chrono>
#include <future>

#include <weft/protobuf_group.h>

#include "support/awaited.h"
#include "support/child.h"
#include "support/echo.h"
#include "support/fresh_uri.h"

namespace weft::await_blocked_test {
namespace {

using namespace weft::test;
using echo::v1::EchoClient;

constexpr MethodId silent_method("test.Blocked/Silent"), front_method("test.Blocked/Front");

struct Targets {
    Channel channel;
    Group group;
    Duration timeout;
};

Task<Status> call_in_bytes(const Targets& at) {
    return awaited::call(at.channel, silent_method, at.timeout);
}
Task<Status> stub(const Targets& at) {
    const EchoClient client(at.channel);
    co_return (co_await client.Held(request_of("x"), {.timeout = at.timeout})).status();
}
Task<Status> get_of_bytes(const Targets& at) { return awaited::get(at.channel, at.timeout); }
Task<Status> put_of_bytes(const Targets& at) { return awaited::put(at.channel, at.timeout); }
Task<Status> collective(const Targets& at) { return awaited::collective(at.group, at.timeout); }
Task<Status> meeting(const Targets& at) {
    GroupCallOptions options;
    options.timeout = at.timeout;
    co_return co_await barrier(at.group, "blocked", options);
}

struct Kind {
    const char* name;
    Task<Status> (*await)(const Targets&);
    bool is_of_group;
};
constexpr Kind kinds[] = {
    {"call in bytes", call_in_bytes, false},
    {"stub", stub, false},
    {"get", get_of_bytes, false},
    {"put", put_of_bytes, false},
    {"collective", collective, true},
    {"barrier", meeting, true},
};

Task<void> keep(Task<Status> awaited, Status& into, int& ended) {
    into = co_await awaited;
    ++ended;
}

// Its handler awaits an operation of the given kind.
struct Front final : Service {
    Kind kind{};
    const Targets* at = nullptr;
    Status awaited;
    int ended = 0;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(front_method, [this](Call call) {
            detail::run_detached(serve(std::move(call), *this), [] {});
        });
    }
    static Task<void> serve([[maybe_unused]] Call call, Front& front) {
        Task<Status> task = front.kind.await(*front.at);
        front.awaited = co_await task;
        ++front.ended;
    }
};

// A server with methods that never answer, a runtime that runs coroutines, and a runtime through
// which these await. The latter is turned as long as it is in the rig.
struct World {
    EchoServer service;
    Front front;
    SimRig rig;
    Runtime& server = rig.add("server");
    Runtime& home = rig.add("home");
    Runtime& client = rig.add("");
    std::unique_ptr<Runtime> blocked;
    Targets at;
    Status status;
    int ended = 0;

    explicit World(Duration timeout) {
        REQUIRE(server.add(service).ok());
        REQUIRE(home.add(front).ok());
        Runtime& through = rig.add("through");
        const GroupView view =
            GroupView::make("blocked", 1, {{0, {"sim://through"}}, {1, {"sim://server"}}}).value();
        REQUIRE(through.join(view, 0).ok());
        at = {through.connect("sim://server").value(), through.group(view).value(), timeout};
        front.at = &at;
    }
    ~World() { at = {}; }
    void block() {
        blocked = std::move(rig.runtimes.back());
        rig.runtimes.pop_back();
    }
    void unblock() { rig.runtimes.push_back(std::move(blocked)); }
    // Returns the time until the end, to the millisecond.
    Duration run_to_end(const int& over) {
        const TimePoint before = rig.clock->now();
        while (over == 0 && rig.clock->now() - before < 5s) rig.run_for(1ms);
        REQUIRE(over == 1);
        return rig.clock->now() - before;
    }
};

}  // namespace

TEST_CASE("an operation through a runtime with a blocked thread ends by its deadline") {
    for (const Kind& kind : kinds) {
        for (const bool has_begun : {false, true}) {
            INFO(kind.name << (has_begun ? ", begun" : ", not begun"));
            World world(200ms);
            if (!has_begun) world.block();
            world.home.spawn(keep(kind.await(world.at), world.status, world.ended));
            if (has_begun) {
                // Until the operation has begun there and before a reply is processed.
                for (Runtime* one : {&world.home, world.rig.runtimes.back().get()}) one->turn();
                world.block();
            }
            const Duration took = world.run_to_end(world.ended);
            CHECK(took >= 200ms);
            CHECK(took <= 220ms);
            CHECK(world.status.code() == Code::deadline_exceeded);
            const bool is_known = !has_begun && !kind.is_of_group;
            CHECK(world.status.effect() == (is_known ? Effect::none : Effect::unknown));
            world.unblock();  // Operations that end late there have no awaiter.
            world.rig.run_for(1s);
            CHECK(world.ended == 1);
            if (is_known) CHECK(world.service.handled + world.service.waiting == 0);
        }
    }
}

TEST_CASE("a handler's operation through a runtime with a blocked thread ends with its call") {
    for (const Kind& kind : kinds) {
        for (const bool is_cancelled : {false, true}) {
            INFO(kind.name << (is_cancelled ? ", cancelled" : ", by the deadline"));
            World world(10min);
            world.front.kind = kind;
            const Channel channel = world.client.connect("sim://home").value();
            world.block();
            const OperationId call =
                channel.call(front_method, {}, {.timeout = is_cancelled ? Duration(10min) : 100ms},
                             [](const Status&, ByteView) {});
            if (is_cancelled) {
                world.rig.run_for(100ms);
                REQUIRE(world.front.ended == 0);
                channel.cancel_call(call);
            }
            CHECK(world.run_to_end(world.front.ended) <= (is_cancelled ? 20ms : 120ms));
            CHECK_FALSE(world.front.awaited.ok());
            if (is_cancelled) CHECK(world.front.awaited.code() == Code::cancelled);
            world.unblock();
            world.rig.run_for(1s);
            CHECK(world.front.ended == 1);
        }
    }
}

TEST_CASE("a runtime that is not blocked reports a deadline of operations through it itself") {
    World world(100ms);
    world.home.spawn(keep(stub(world.at), world.status, world.ended));
    CHECK(world.run_to_end(world.ended) <= 105ms);
    CHECK(world.status.code() == Code::deadline_exceeded);
    CHECK(std::string(world.status.text()).find("blocks its thread") == std::string::npos);
}

TEST_CASE("block_on() in a handler returns when its coroutine awaits the handler's runtime") {
    const ChildOutput output = output_of_child([] {
        ::alarm(20);
        const auto quiet = [] { return Runtime::create({.log_level = LogLevel::off}).value(); };
        Runtime home = quiet(), through = quiet();
        const Channel channel = through.connect(fresh_uri("sm")).value();
        const Targets at{channel, {}, 100ms};
        std::promise<Status> awaited;
        through.executor().post([&] { awaited.set_value(home.block_on(call_in_bytes(at))); });
        const Status status = awaited.get_future().get();
        return status.code() == Code::deadline_exceeded && status.effect() == Effect::none ? 0 : 1;
    });
    CAPTURE(output.text);
    CHECK(output.end == 0);
}

}  // namespace weft::await_blocked_test
