#include <memory>
#include <vector>

#include "base/random.h"
#include "base/timer_wheel.h"
#include "support/catch.h"

using namespace weft;
using base::Timer;
using base::TimerWheel;

namespace {

struct Probe : Timer {
    TimePoint fired_at = never;
    Probe() {
        fire = [](Timer& timer, TimePoint now) { static_cast<Probe&>(timer).fired_at = now; };
    }
};

constexpr Duration tick{1 << 20};

}  // namespace

TEST_CASE("a timer never fires early and at most two ticks late") {
    base::SeededRandom random(1);
    TimePoint now(Duration(123'456'789));
    TimerWheel wheel(now);
    std::vector<std::unique_ptr<Probe>> probes;
    for (int i = 0; i < 5000; ++i) {
        probes.push_back(std::make_unique<Probe>());
        // From nanoseconds to almost five hours: every level, and beyond the wheel.
        const int shift = static_cast<int>(random.next() % 45);
        wheel.arm(*probes.back(), now + Duration(random.next() % (1ull << shift) + 1));
    }
    while (wheel.armed() != 0) {
        const TimePoint next = wheel.next_deadline();
        REQUIRE(next > now);
        now = next;
        wheel.advance(now);
    }
    for (const auto& probe : probes) {
        REQUIRE(probe->fired_at >= probe->deadline);
        REQUIRE(probe->fired_at <= probe->deadline + 2 * tick);
    }
}

TEST_CASE("a cancelled timer does not fire, and a fired one may be armed again") {
    TimePoint now(Duration(0));
    TimerWheel wheel(now);
    Probe cancelled, again;
    wheel.arm(cancelled, now + 5ms);
    wheel.arm(again, now + 5ms);
    wheel.cancel(cancelled);
    wheel.advance(now + 10ms);
    CHECK(cancelled.fired_at == never);
    REQUIRE(again.fired_at == now + 10ms);
    wheel.arm(again, now + 20ms);
    wheel.advance(now + 30ms);
    CHECK(again.fired_at == now + 30ms);
    CHECK(wheel.armed() == 0);
    CHECK(wheel.next_deadline() == never);
}

TEST_CASE("a wheel fires only the due timers after a pause of any length") {
    base::SeededRandom random(2);
    for (const Duration silence : {Duration(5s), Duration(1h), Duration(24h * 30)}) {
        TimePoint now(Duration(987'654'321));
        TimerWheel wheel(now);
        std::vector<std::unique_ptr<Probe>> probes;
        for (int i = 0; i < 2000; ++i) {
            probes.push_back(std::make_unique<Probe>());
            const auto most = static_cast<std::uint64_t>(2 * silence.count());
            wheel.arm(*probes.back(), now + Duration(random.next() % most));
        }
        now += silence;
        wheel.advance(now);
        for (const auto& probe : probes) {
            if (probe->deadline <= now - tick) REQUIRE(probe->fired_at == now);
            if (probe->deadline > now) REQUIRE(probe->fired_at == never);
        }
        while (wheel.armed() != 0) {
            now = wheel.next_deadline();
            wheel.advance(now);
        }
        for (const auto& probe : probes) {
            REQUIRE(probe->fired_at >= probe->deadline);
            REQUIRE((probe->fired_at <= probe->deadline + 2 * tick ||
                     probe->fired_at == TimePoint(Duration(987'654'321)) + silence));
        }
    }
}

TEST_CASE("a timer with an instant before the clock's epoch fires with the next tick") {
    TimePoint now(Duration(123'456'789));
    TimerWheel wheel(now);
    for (const Duration at : {Duration(-1), Duration(-3600'000'000'000), Duration::min()}) {
        Probe probe;
        wheel.arm(probe, TimePoint(at));
        now += 2 * tick;
        wheel.advance(now);
        CHECK(probe.fired_at != never);
        wheel.cancel(probe);
    }
}

TEST_CASE("a distant timer wakes its owner a few times before it is due, not every 67 ms") {
    base::SeededRandom random(3);
    for (const Duration far : {Duration(100ms), Duration(10min), Duration(4h), Duration(24h)}) {
        for (int i = 0; i < 200; ++i) {
            TimePoint now(Duration(random.next() % (1ull << 50)));
            TimerWheel wheel(now);
            Probe probe;
            const TimePoint due = now + far + Duration(random.next() % (1ull << 30));
            wheel.arm(probe, due);
            int wakes = 0;
            for (; probe.fired_at == never; ++wakes) {
                now = wheel.next_deadline();
                wheel.advance(now);
            }
            CHECK(probe.fired_at >= due);
            CHECK(probe.fired_at <= due + 2 * tick);
            // Beyond the reach of 4.7 h the timer is placed again after each revolution.
            CHECK(wakes <= (far < 4h + 30min ? 4 : 12));
        }
    }
}
