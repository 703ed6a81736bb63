// A million calls in flight in one context: the memory of each, and that each completes once and in
// time.
#include <malloc.h>

#include <algorithm>
#include <string>
#include <vector>

#include <weft/runtime.h>

#include "alloc/counting_new.h"
#include "base/steady_clock.h"
#include "support/catch.h"
#include "support/sim_rig.h"

using namespace weft;
using namespace weft::test;

namespace {

constexpr MethodId echo("test.Waiting/Echo");
constexpr std::uint32_t servers = 64;
constexpr std::uint32_t calls_each = 15'625;
constexpr std::uint32_t calls = servers * calls_each;
constexpr Duration tick{1 << 20};

// Sanitizers have a heap of their own, which malloc's statistics do not include.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool malloc_tells = false;
#else
constexpr bool malloc_tells = true;
#endif

std::size_t bytes_in_use() {
    const struct mallinfo2 info = ::mallinfo2();
    return info.uordblks + info.hblkhd;
}

// Their servers listen and never take a turn: the calls wait for their connections.
struct Crowd {
    Crowd() {
        for (std::uint32_t i = 0; i < servers; ++i) {
            rig.add("server-" + std::to_string(i));
            stopped.push_back(std::move(rig.runtimes.back()));
            rig.runtimes.pop_back();
            channels.push_back(client.connect("sim://server-" + std::to_string(i)).value());
        }
        rig.run_until_idle();
    }
    // Calls all servers, with a body of 16 bytes.
    void call_all() {
        for (std::uint32_t i = 0; i < calls; ++i) {
            const Duration timeout = 500ms + Duration(i % 1000) * 100'000;
            channels[i % servers].call(echo, as_bytes("sixteen bytes..."), {.timeout = timeout},
                                       [this, i](const Status& status, ByteView) {
                                           ++ended[i];
                                           codes += status.code() == Code::unavailable;
                                           at[i] = rig.clock->now();
                                       });
        }
    }

    std::vector<std::uint8_t> ended = std::vector<std::uint8_t>(calls);
    std::vector<TimePoint> at = std::vector<TimePoint>(calls);
    std::uint32_t codes = 0;
    SimRig rig;
    Runtime& client = rig.add("");
    std::vector<std::unique_ptr<Runtime>> stopped;
    std::vector<Channel> channels;
};

}  // namespace

TEST_CASE("a million waiting calls cost 256 bytes each and time out once each") {
    Crowd crowd;
    const TimePoint start = crowd.rig.clock->now();
    const std::size_t before =
        bytes_in_use() - static_cast<std::size_t>(weft::test::header_bytes());
    crowd.call_all();
    const std::size_t after = bytes_in_use() - static_cast<std::size_t>(weft::test::header_bytes());
    const rpc::Client& client = node_of(crowd.client).client;
    CHECK(client.in_flight() == calls);
    crowd.rig.run_for(700ms);
    CHECK(client.in_flight() == 0);
    CHECK(client.is_balanced());
    CHECK(std::count(crowd.ended.begin(), crowd.ended.end(), 1) == calls);
    CHECK(crowd.codes == calls);
    std::uint32_t early = 0, late = 0;
    for (std::uint32_t i = 0; i < calls; ++i) {
        const TimePoint deadline = start + 500ms + Duration(i % 1000) * 100'000;
        early += crowd.at[i] < deadline;
        late += crowd.at[i] > deadline + tick;
    }
    CHECK(early == 0);
    CHECK(late == 0);
    if (!malloc_tells) return;
    const double each = static_cast<double>(after - before) / calls;
    CAPTURE(each);
    CHECK(each > 100);
    CHECK(each <= 256);
}

// Measures time, so it runs in `make soak` only, not in CI.
TEST_CASE("arming and cancelling a timeout among a million calls takes 40 ns", "[.times]") {
    Crowd crowd;
    crowd.call_all();
    base::TimerWheel& wheel = node_of(crowd.client).context.timers();
    REQUIRE(wheel.armed() >= calls);
    // As concurrent calls do: the cancelled timer is the one armed last, or first.
    const std::size_t at_once = GENERATE(1, 10'000);
    std::vector<base::Timer> timers(at_once);
    const TimePoint now = crowd.rig.clock->now();
    for (base::Timer& timer : timers) {
        timer.fire = [](base::Timer&, TimePoint) {};
        wheel.arm(timer, now + 500ms);
    }
    const base::SteadyClock clock;
    std::vector<double> rounds;
    for (int round = 0; round < 101; ++round) {
        constexpr std::size_t times = 10'000;
        const TimePoint begin = clock.now();
        for (std::size_t i = 0; i < times; ++i) {
            base::Timer& timer = timers[i % at_once];
            wheel.cancel(timer);
            wheel.arm(timer, now + 500ms + Duration(i) * 9'973);
        }
        rounds.push_back(static_cast<double>((clock.now() - begin).count()) / times);
    }
    for (base::Timer& timer : timers) wheel.cancel(timer);
    std::sort(rounds.begin(), rounds.end());
    const double median = rounds[rounds.size() / 2];
    WARN("of " << at_once << " timers: " << median << " ns, median of 101 rounds");
    CHECK(median <= 40);
    crowd.rig.run_for(700ms);
}
