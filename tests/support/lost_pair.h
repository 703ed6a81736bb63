// A server and a client with a connection that can be cut.
#pragma once

#include "rpc/channel_impl.h"
#include "support/raw_echo.h"

namespace weft::test {

struct Lost : Pair {
    Runtime& named = rig.add("client");
    rpc::Client& calls = node_of(named).client;
    Lost() { channel = named.connect("sim://server").value(); }
    core::Peer& peer() { return *core::Context::find(rpc::ChannelImpl::of(channel)->peer()); }
    // As when a router dies: neither side closes the connection.
    void lose_connection() {
        node_of(named).context.drop_connection(peer(), fail(Code::unavailable, "cut by the test"));
    }
    void warm_up() {
        CallOutcome first;
        channel.call(echo_method, {}, {}, first.done());
        REQUIRE(rig.run_until([&] { return first.completions > 0; }));
        service.handled = 0;
    }
    bool run_until_empty(Duration limit = 10s) {
        return rig.run_until([&] { return calls.in_flight() == 0; }, limit);
    }
    const rpc::Server::Counters& served() { return node_of(server).server.counters(); }
};

}  // namespace weft::test
