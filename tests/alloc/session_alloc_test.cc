// A session without memory leaves nothing behind.
#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "core/context.h"
#include "rpc/channel_impl.h"
#include "rpc/client_session.h"
#include "rpc/server_sessions.h"
#include "support/catch.h"
#include "support/sim_rig.h"

using namespace weft;
using namespace weft::test;

TEST_CASE("a call without memory for its session has no interest in its peer afterwards") {
    if (!allocations_count()) return;
    SimRig rig;
    rig.add("server");
    Runtime& client = rig.add("");
    Channel channel = client.connect("sim://server").value();
    Status status;
    bool done = false;
    {
        // A node of the list of sessions.
        const FailingNew failing(FailingNew::none, sizeof(rpc::ClientSession) + 2 * sizeof(void*));
        channel.call(MethodId("test.None/None"), ByteView(), {}, [&](const Status& with, ByteView) {
            status = with;
            done = true;
        });
        REQUIRE(failing.failed() == 1);
    }
    REQUIRE(rig.run_until([&] { return done; }));
    CHECK(status.code() == Code::resource_exhausted);
    CHECK(core::Context::find(rpc::ChannelImpl::of(channel)->peer())->interest == 0);
}

TEST_CASE("a session without memory for more slots takes none of those that contexts share") {
    if (!allocations_count()) return;
    struct Owner final : rpc::SessionOwner {
        void on_time(rpc::ServerSession&, TimePoint) override {}
    } owner;
    constexpr std::uint64_t pool = rpc::ServerSessions::slots_pool;
    constexpr std::uint32_t contexts = 64;
    const auto budgets = std::make_shared<core::Budgets>(
        RuntimeOptions(), core::FixedLimits{1, rpc::ServerSessions::sessions_max, pool}, contexts);
    rpc::ServerSessions sessions(1, 0, budgets);
    rpc::ServerSession* const session =
        sessions.begin(owner, {1, 1}, [](rpc::ServerSession&) { FAIL(); });
    REQUIRE(session);
    const std::uint32_t before = session->slots();
    {
        const FailingNew failing(0);
        sessions.widen(*session);
        REQUIRE(failing.failed() == 1);
    }
    CHECK(session->slots() == before);
    {
        core::Budget::Share other(core::budget_of(budgets, &core::Budgets::session_slots), 0);
        CHECK(other.could_extend(0, pool - (contexts - 1) * other.limit()));
    }
    sessions.widen(*session);
    CHECK(session->slots() > before);
    sessions.erase(*session);
}
