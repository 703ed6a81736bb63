// The end of a server while the connection of a client is lost: the client may connect again.
#include "support/lost_pair.h"

using namespace weft;
using namespace weft::test;

namespace rpc_drain {

struct Ending : Lost {
    api::Node& node = server.node();
    bool is_drained() {
        const auto [left, leaving] = node.left_to_drain();
        return left == 0 && leaving == 0;
    }
};

TEST_CASE("the end of a server waits for a client that is about to connect again") {
    Ending rig;
    rig.service.hold = true;
    CallOutcome outcome;
    rig.channel.call(echo_method, as_bytes("x"), {}, outcome.done());
    REQUIRE(rig.rig.run_until([&] { return rig.service.held.size() == 1; }));
    rig.node.begin_drain();
    rig.lose_connection();
    rig.rig.run_for(1ms);
    rig.service.held[0].reply(as_bytes("y"));
    rig.service.held.clear();
    CHECK_FALSE(rig.is_drained());
    REQUIRE(rig.rig.run_until([&] { return rig.is_drained(); }, 5s));
    // It ends at once.
    rig.rig.runtimes.erase(rig.rig.runtimes.begin());
    REQUIRE(rig.rig.run_until([&] { return outcome.completions == 1; }));
    INFO(outcome.status.to_string());
    CHECK(outcome.status.ok());
    CHECK(outcome.reply == "y");
}

TEST_CASE("the end of a server waits no longer for a client than the client looks for the server") {
    Ending rig;
    rig.warm_up();
    rig.named.node().context.shutdown(fail(Code::cancelled, "gone without a word"));
    rig.named.node().context.close_endpoints();
    rig.rig.run_for(1ms);
    rig.node.begin_drain();
    CHECK_FALSE(rig.is_drained());
    CHECK(rig.rig.run_until([&] { return rig.is_drained(); }, 1s));
}

TEST_CASE("the end of a server does not wait for a client that ended its session") {
    Ending rig;
    rig.warm_up();
    rig.channel = Channel();
    rig.rig.run_for(1ms);
    rig.node.begin_drain();
    CHECK(rig.is_drained());
}

}  // namespace rpc_drain
