// A call without memory for its session leaves nothing behind.
#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "core/context.h"
#include "rpc/channel_impl.h"
#include "rpc/client_session.h"
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
