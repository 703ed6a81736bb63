#include "core/load_meter.h"

#include "support/catch.h"

using namespace weft;
using core::LoadMeter;

namespace {

const TimePoint metered = TimePoint() + 1000s;

struct Metered {
    // A turn of 1 ms.
    void turn(TimePoint at, Duration took = 1ms) {
        meter.add(at - took, at, [&] {
            ++windows;
            return counts;
        });
    }
    LoadMeter meter;
    core::CallCounts counts;
    int windows = 0;
};

}  // namespace

TEST_CASE("load meter: the busy share is that of the last window, also after a pause") {
    Metered it;
    CHECK(it.meter.share(metered) == 0);
    it.turn(metered);  // The first window begins with the first turn.
    for (int i = 1; i < 1000; ++i) it.turn(metered + i * 1ms, 500us);
    CHECK(it.windows == 1);
    CHECK(it.meter.share(metered + 1s) == Approx(500).margin(3));
    CHECK(it.meter.share(metered + 10s) == Approx(50).margin(1));
    it.turn(metered + 10s);
    CHECK(it.windows == 2);
    CHECK(it.meter.share(metered + 10s + 1ms) == Approx(50).margin(1));
}

TEST_CASE("load meter: rates are those of the last window, and zero when nothing follows") {
    Metered it;
    CHECK(it.meter.rates(metered).served == 0);
    it.counts = {5000, 100};  // From before: no rate.
    it.turn(metered);
    CHECK(it.meter.rates(metered).served == 0);
    it.counts = {7000, 101};
    it.turn(metered + 2s);
    CHECK(it.meter.rates(metered + 2s).served == Approx(1000));
    CHECK(it.meter.rates(metered + 3900ms).made == Approx(0.5));
    CHECK(it.meter.rates(metered + 4100ms).served == 0);
    CHECK(it.meter.rates(metered + 4100ms).made == 0);
    it.counts = {8000, 101};
    it.turn(metered + 102s);
    CHECK(it.meter.rates(metered + 102s).served == Approx(10));
    CHECK(it.meter.rates(metered + 102s).made == 0);
    CHECK(it.windows == 3);
}

TEST_CASE("load meter: a window lasts until the calls are counted, a quarter longer at most") {
    Metered it;
    it.turn(metered);
    it.counts = {500, 0, false};
    it.turn(metered + 1100ms);
    CHECK(it.meter.rates(metered + 1100ms).served == 0);
    it.counts = {1200, 0, true};
    it.turn(metered + 1200ms);
    CHECK(it.meter.rates(metered + 1200ms).served == Approx(1000));
    CHECK(it.windows == 3);
    it.turn(metered + 2100ms);
    CHECK(it.windows == 3);
    // With turns that are too rare to count all, part of the calls is in the next window.
    it.counts = {1800, 0, false};
    it.turn(metered + 2400ms);
    CHECK(it.meter.rates(metered + 2400ms).served == Approx(1000));
    it.turn(metered + 2700ms);
    CHECK(it.meter.rates(metered + 2700ms).served == Approx(400));
}
