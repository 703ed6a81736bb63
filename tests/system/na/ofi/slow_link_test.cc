// A link that is full for longer than a peer may be silent: pings and pongs wait in the stream
// behind transfers and large messages, and the peers are alive.
#include <chrono>
#include <vector>

#include <weft/runtime.h>

#include "api/runtime_impl.h"
#include "support/catch.h"
#include "support/outcomes.h"
#include "support/tcp_relay.h"
#include "support/test_timeout.h"
#include "support/usable.h"

using namespace weft;
using namespace weft::test;

namespace {

using Clock = std::chrono::steady_clock;
constexpr MethodId source("slow.Link/Source");
constexpr MethodId hold("slow.Link/Hold");

struct Source final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(source, [this](Call call) { call.reply(body); });
        registrar.add(hold, [this](Call call) { held.push_back(std::move(call)); });
    }
    std::vector<std::byte> body;
    std::vector<Call> held;
};

// The relay passes `bytes_per_second` of the server's output.
struct SlowLink {
    explicit SlowLink(double rate) : bytes_per_second(rate) {
        REQUIRE(server.serve(service, "ofi+tcp://127.0.0.1:0").ok());
        relay = std::make_unique<TcpRelay>(
            na::parse_address(server.addresses().front()).value().port, 32 << 10);
        relay->hold_after(0);
        channel = client.connect("ofi+tcp://127.0.0.1:" + std::to_string(relay->port())).value();
    }
    ~SlowLink() { service.held.clear(); }
    bool until(const std::function<bool()>& done, Duration limit) {
        const auto end = Clock::now() + limit;
        while (!done()) {
            const auto now = Clock::now();
            if (now >= end) return false;
            const double due = std::chrono::duration<double>(now - since).count();
            const auto bytes = static_cast<std::size_t>(due * bytes_per_second);
            if (bytes > passed) relay->let_pass(bytes - passed);
            passed = std::max(passed, bytes);
            relay->turn();
            server.turn();
            client.turn();
        }
        return true;
    }
    std::uint64_t timed_out_peers() {
        return node_of(server).context.counters().timed_out_peers +
               node_of(client).context.counters().timed_out_peers;
    }

    const double bytes_per_second;
    Outcomes outcomes, held;
    Source service;
    Runtime server = Runtime::create({.manual = true}).value();
    Runtime client = Runtime::create({.manual = true}).value();
    std::unique_ptr<TcpRelay> relay;
    Channel channel;
    Clock::time_point since = Clock::now();
    std::size_t passed = 0;
};

}  // namespace

TEST_CASE("ofi: a get that fills its link for longer than the silence limit does not time out") {
    SlowLink link(600'000);
    Buffer memory = link.server.allocate(3 << 20).value();
    Buffer local = link.client.allocate(memory.size()).value();
    Region region = link.server.expose(memory, {.access = Access::read}).value();
    link.channel.get(region.ref(), 0, local, {.timeout = 4 * test_timeout},
                     link.outcomes.transfer());
    REQUIRE(link.until([&] { return link.outcomes.all_ended(); }, 4 * test_timeout));
    INFO(link.outcomes.text());
    CHECK(link.outcomes.ok() == 1);
    CHECK(link.timed_out_peers() == 0);
}

TEST_CASE("ofi: replies that fill their link for longer than the silence limit do not time out") {
    // The kernel's buffer for a socket on the loopback device takes up to 4 MiB of the replies.
    SlowLink link(4e6);
    constexpr int calls = 140;  // As many calls as may wait for one peer.
    link.service.body.resize(100'000);
    link.channel.call(hold, as_bytes("x"), {.timeout = 4 * test_timeout}, link.held.call());
    for (int i = 0; i < calls; ++i) {
        link.channel.call(source, as_bytes("x"), {.timeout = 4 * test_timeout},
                          link.outcomes.call());
    }
    REQUIRE(link.until([&] { return link.outcomes.all_ended(); }, 4 * test_timeout));
    INFO(link.outcomes.text());
    CHECK(link.outcomes.ok() == calls);
    CHECK(link.held.ended() == 0);
    CHECK(link.timed_out_peers() == 0);
}
