// Which way a group's channel to a member goes, by the word of a peer and by the program's own
// view.
#include <unistd.h>

#include <optional>

#include <weft/runtime.h>

#include "api/node.h"
#include "coll/group_impl.h"
#include "support/hold_server.h"
#include "support/patience.h"
#include "support/raw_echo.h"

using namespace weft;
using namespace weft::test;

namespace {

// A member at two addresses, and a client whose own view knows tcp only.
struct TwoWays {
    RuntimeOptions manual{.wait = WaitMode::spin, .log_level = LogLevel::off, .manual = true};
    HoldServer service;
    Runtime server = Runtime::create(manual).value();
    Runtime client = Runtime::create(manual).value();
    std::string fast = "sm://ways-" + std::to_string(::getpid());
    std::string slow;
    std::optional<GroupView> later;
    std::shared_ptr<coll::GroupImpl> group;

    TwoWays() {
        REQUIRE(server.serve(service, {fast, "tcp://127.0.0.1:0"}).ok());
        for (const std::string& uri : server.addresses()) {
            if (uri.starts_with("tcp")) slow = uri;
        }
        const Member first{0, {"tcp://127.0.0.1:1"}};
        later = GroupView::make("ways", 2, {first, {1, {fast, slow}}}).value();
        group = std::make_shared<coll::GroupImpl>(client.node().collectives, nullptr,
                                                  GroupView::make("ways", 1, {first}).value());
        REQUIRE(group->learn(*later).ok());
    }
    bool turn_until(const std::function<bool()>& done) {
        return client.turn_until(
            [&] {
                server.turn();
                return done();
            },
            patience);
    }
    std::string way() { return std::string(group->channel(1).value().uri()); }
};

}  // namespace

TEST_CASE("coll channel: a member that a peer named is reached the best way once a view names it") {
    TwoWays ways;
    CHECK(ways.way() == ways.slow);  // For a peer's word no transport is opened.
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
    CHECK(ways.group->channel(1)->impl() == kept.impl());
}

TEST_CASE("coll channel: a call under way keeps its channel when a view brings a better one") {
    TwoWays ways;
    CallOutcome held;
    const Channel channel = ways.group->channel(1).value();
    channel.call(HoldServer::hold, as_bytes("x"), {.timeout = patience}, held.done());
    REQUIRE(ways.turn_until([&] { return ways.service.held.size() == 1; }));
    (void)ways.group->install(*ways.later);
    REQUIRE(ways.way() == ways.fast);
    ways.service.held[0].reply(as_bytes("y"));
    ways.service.held.clear();
    REQUIRE(ways.turn_until([&] { return held.completions == 1; }));
    CHECK(held.status.ok());
}
