// Operations that a handler's coroutine awaits through another runtime stay part of its call, and
// so does the rest of the coroutine.
#include <weft/protobuf_group.h>

#include "support/echo.h"

namespace await_scope_test {

using namespace weft;
using namespace weft::test;
using echo::v1::EchoGroupClient;

constexpr MethodId outer_method("test.AwaitScope/Outer");

// Its handler awaits a collective and then sleeps beyond the deadline of its call.
struct Front final : Service {
    Group group;
    GroupCallOptions options;
    Status awaited, slept;
    int over = 0;
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(outer_method, [this](Call call) {
            detail::run_detached(serve(std::move(call), *this), [] {});
        });
    }
    static Task<void> serve([[maybe_unused]] Call call, Front& front) {
        const EchoGroupClient client(front.group);
        echo::v1::EchoRequestText request;
        front.awaited = (co_await client.Everywhere(request, front.options)).status();
        front.slept = co_await sleep_for(1h);
        ++front.over;
    }
};

struct World {
    Front front;
    EchoPair pair;
    Runtime& other = pair.rig.add("");
    std::unique_ptr<Runtime> asleep;

    // `elsewhere`: the group belongs to another runtime. `answers`: its member answers; otherwise
    // the member is never turned.
    World(bool elsewhere, bool answers) {
        REQUIRE(pair.server.add(front).ok());
        if (!answers) {
            pair.rig.add("asleep");
            asleep = std::move(pair.rig.runtimes.back());
            pair.rig.runtimes.pop_back();
        }
        const std::string member = answers ? "sim://server" : "sim://asleep";
        const GroupView view = GroupView::make("scope", 1, {{0, {member}}}).value();
        REQUIRE((answers ? pair.server : *asleep).join(view, 0).ok());
        front.group = (elsewhere ? other : pair.server).group(view).value();
        front.options.timeout = 10min;
    }
    ~World() { front.group = Group(); }
    OperationId ask(Duration timeout) const {
        return pair.channel.call(outer_method, {}, {.timeout = timeout},
                                 [](const Status&, ByteView) {});
    }
};

TEST_CASE("a handler's coroutine keeps its call's deadline after a collective it awaited") {
    const bool elsewhere = GENERATE(false, true);
    CAPTURE(elsewhere);
    World world(elsewhere, true);
    world.ask(50ms);
    world.pair.rig.run_for(1s);
    CHECK(world.front.over == 1);
    CHECK(world.front.awaited.ok());
    CHECK_FALSE(world.front.slept.ok());
}

TEST_CASE("a handler's collective through another runtime is cancelled with the handler's call") {
    const bool elsewhere = GENERATE(false, true);
    CAPTURE(elsewhere);
    World world(elsewhere, false);
    const OperationId call = world.ask(5min);
    world.pair.rig.run_for(100ms);
    CHECK(world.front.over == 0);
    world.pair.channel.cancel_call(call);
    world.pair.rig.run_for(1s);
    CHECK(world.front.over == 1);
    CHECK(world.front.awaited.code() == Code::cancelled);
    CHECK(world.front.slept.code() == Code::cancelled);
}

}  // namespace await_scope_test
