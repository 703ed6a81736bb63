// The transport of a group's channel to a member: for an address from a peer, and for one of the
// program's own view.
#include <unistd.h>

#include <optional>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "coll/group_state.h"
#include "rpc/channel_impl.h"
#include "support/hold_server.h"
#include "support/raw_echo.h"
#include "support/test_timeout.h"

using namespace weft;
using namespace weft::test;

namespace {

// A member at two addresses, and a client with a view of its own that has the tcp address only.
struct TwoWays {
    RuntimeOptions manual{.wait = WaitMode::spin, .log_level = LogLevel::off, .manual = true};
    HoldServer service;
    Runtime server = Runtime::create(manual).value();
    Runtime client = Runtime::create(manual).value();
    std::string fast = "sm://ways-" + std::to_string(::getpid());
    std::string slow;
    std::optional<GroupView> later;
    std::shared_ptr<coll::GroupState> group;

    TwoWays() {
        REQUIRE(server.serve(service, {fast, "tcp://127.0.0.1:0"}).ok());
        for (const std::string& uri : server.addresses()) {
            if (uri.starts_with("tcp")) slow = uri;
        }
        const Member first{0, {"tcp://127.0.0.1:1"}};
        later = GroupView::make("ways", 2, {first, {1, {fast, slow}}}).value();
        group = impl_of(client).collectives.make_group(nullptr,
                                                       GroupView::make("ways", 1, {first}).value());
        REQUIRE(group->install_from_peer(*later).ok());
    }
    bool turn_until(const std::function<bool()>& done) {
        return client.turn_until(
            [&] {
                server.turn();
                return done();
            },
            test_timeout);
    }
    std::string way() { return std::string(group->channel(1).value().uri()); }
};

}  // namespace

TEST_CASE("coll channel: a member known from a peer is reached the best way once a view has it") {
    TwoWays ways;
    CHECK(ways.way() == ways.slow);  // An address from a peer opens no transport.
    CHECK(ways.way() == ways.slow);
    SECTION("a view that was learned already") { REQUIRE(!ways.group->install(*ways.later).ok()); }
    SECTION("a later view") {
        const GroupView third = GroupView::make("ways", 3, {{1, {ways.fast, ways.slow}}}).value();
        REQUIRE(ways.group->install(third).ok());
    }
    CHECK(ways.way() == ways.fast);
    CallOutcome outcome;
    ways.group->channel(1)->call(HoldServer::echo, as_bytes("x"), {}, outcome.done());
    REQUIRE(ways.turn_until([&] { return outcome.completions == 1; }));
    CHECK(outcome.status.ok());
}

TEST_CASE("coll channel: a channel of the program's own view stays when a view is installed") {
    TwoWays ways;
    (void)ways.group->install(*ways.later);
    const Channel kept = ways.group->channel(1).value();
    const GroupView third =
        GroupView::make("ways", 3, {{1, {ways.fast, ways.slow}}, {2, {"tcp://127.0.0.1:1"}}})
            .value();
    REQUIRE(ways.group->install(third).ok());
    CHECK(rpc::ChannelImpl::of(*ways.group->channel(1)) == rpc::ChannelImpl::of(kept));
}

TEST_CASE("coll channel: a call in flight keeps its channel when a view brings a better one") {
    TwoWays ways;
    CallOutcome held;
    const Channel channel = ways.group->channel(1).value();
    channel.call(HoldServer::hold, as_bytes("x"), {.timeout = test_timeout}, held.done());
    REQUIRE(ways.turn_until([&] { return ways.service.held.size() == 1; }));
    (void)ways.group->install(*ways.later);
    REQUIRE(ways.way() == ways.fast);
    ways.service.held[0].reply(as_bytes("y"));
    ways.service.held.clear();
    REQUIRE(ways.turn_until([&] { return held.completions == 1; }));
    CHECK(held.status.ok());
}
