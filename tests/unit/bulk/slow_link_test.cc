// Transfers that fill a link on which messages wait behind them.
#include <vector>

#include "na/in_flight_window.h"
#include "support/echo.h"
#include "support/outcomes.h"
#include "support/sim_rig.h"

using namespace weft;
using namespace weft::test;
using na::InFlightWindow;

namespace {

constexpr MethodId sink("slow.Link/Sink");

struct Sink final : Service {
    void register_methods(MethodRegistrar& registrar) override {
        registrar.add(sink, [](Call call) { call.reply(as_bytes("had")); });
    }
};

}  // namespace

TEST_CASE("transfers that fill a link for longer than the heartbeat timeout do not fail") {
    // On such a transport the owner's pings and pongs wait behind the data that it sends.
    Sink service;
    SimRig rig(1, {.rma_checked = false});
    Runtime& server = rig.add("server");
    REQUIRE(server.add(service).ok());
    Runtime& client = rig.add("client");
    Channel channel = client.connect("sim://server").value();
    const double mbit = GENERATE(2.0, 10.0);
    weft::sim::Link slow;
    slow.bytes_per_second = mbit * 125'000;
    rig.world->set_link("server", "client", slow);
    rig.world->set_link("client", "server", slow);
    const std::size_t count = GENERATE(1u, 4u);
    const std::size_t bytes = static_cast<std::size_t>(mbit * (8 << 20) / 10) / count;
    Buffer memory = server.allocate(bytes).value();
    Region region = server.expose(memory, {.access = Access::read_write}).value();
    const int kind = GENERATE(0, 1, 2);
    CAPTURE(mbit, count, bytes, kind);
    Outcomes outcomes;
    const CallOptions options{.timeout = 60s};
    std::vector<std::byte> body(bytes);
    for (std::size_t i = 0; i < count; ++i) {
        Buffer local = client.allocate(bytes).value();
        switch (kind) {
            case 0: channel.get(region.ref(), 0, local, options, outcomes.transfer()); break;
            case 1: channel.put(region.ref(), 0, local, options, outcomes.transfer()); break;
            default: channel.call(sink, body, options, outcomes.call());
        }
    }
    REQUIRE(rig.run_until([&] { return outcomes.all_ended(); }));
    INFO(outcomes.text());
    CHECK(outcomes.ok() == count);
    CHECK(node_of(client).context.counters().timed_out_peers == 0);
    CHECK(node_of(server).context.counters().timed_out_peers == 0);
}

TEST_CASE("a get fails within 3 s when the path to its owner is cut") {
    SimRig rig(1, {.link = {.give_up_after = 20s}, .rma_checked = false});
    Runtime& server = rig.add("server");
    Runtime& client = rig.add("client");
    Channel channel = client.connect("sim://server").value();
    Buffer memory = server.allocate(16 << 20).value();
    Buffer local = client.allocate(memory.size()).value();
    Region region = server.expose(memory, {.access = Access::read}).value();
    weft::sim::Link slow;
    slow.bytes_per_second = 1'250'000;
    slow.give_up_after = 20s;
    rig.world->set_link("server", "client", slow);
    Outcomes outcomes;
    channel.get(region.ref(), 0, local, {.timeout = 60s}, outcomes.transfer());
    rig.run_for(GENERATE(1000ms, 1250ms, 2000ms));
    REQUIRE(outcomes.ended() == 0);
    rig.world->cut("client", "server");
    const TimePoint since = rig.clock->now();
    REQUIRE(rig.run_until([&] { return outcomes.all_ended(); }));
    INFO("after " << (rig.clock->now() - since) / 1ms << " ms: " << outcomes.text());
    CHECK(rig.clock->now() - since < 3s);
    CHECK(outcomes.count("UNAVAILABLE none") == 1);
}

TEST_CASE("a transfer window grows while it is full and fast, and shrinks with late items") {
    InFlightWindow window;
    TimePoint now = TimePoint() + 1h;
    // Sends items one after the other through a link of this rate, with a full window.
    const auto fill = [&](double bytes_per_second, int items) {
        std::vector<std::pair<std::size_t, TimePoint>> queue;
        TimePoint free_at = now;
        for (int i = 0; i < items; ++i) {
            while (window.has_room()) {
                queue.emplace_back(window.item_bytes(), now);
                window.on_posted(window.item_bytes());
            }
            const auto [bytes, posted_at] = queue.front();
            queue.erase(queue.begin());
            now = free_at =
                std::max(free_at, now) + Duration(static_cast<std::int64_t>(
                                             static_cast<double>(bytes) * 1e9 / bytes_per_second));
            window.on_done(bytes, posted_at, now);
        }
        for (const auto& [bytes, posted_at] : queue) window.on_dropped(bytes);
    };
    CHECK(window.bytes_max() == InFlightWindow::bytes_initial);
    fill(1e9, 1000);
    CHECK(window.bytes_max() == InFlightWindow::bytes_limit);
    // On a far slower link the window soon shrinks.
    fill(1.25e6, 100);
    CHECK(window.bytes_max() <= 1 << 20);
    CHECK(window.has_room());
    window.reset();
    fill(125e3, 100);
    CHECK(window.bytes_max() <= InFlightWindow::bytes_initial);
    // A window that is hardly used does not change.
    window.reset();
    for (int i = 0; i < 100; ++i) {
        window.on_posted(1000);
        window.on_done(1000, now, now);
    }
    CHECK(window.bytes_max() == InFlightWindow::bytes_initial);
}
