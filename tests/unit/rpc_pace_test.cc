#include "base/random.h"
#include "rpc/pace.h"
#include "rpc/retry.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::rpc;

static constexpr TimePoint start(1s);

TEST_CASE("pace: it learns how long replies take, and expects that of those in front") {
    Pace pace;
    CHECK(pace.expected(start, 100) == start);  // Nothing is known yet.
    for (int i = 0; i < 100; ++i) pace.on_reply(start + i * 1ms);
    CHECK(pace.expected(start, 9) > start + 9ms);
    CHECK(pace.expected(start, 9) < start + 11ms);
    CHECK(pace.expected(never - 1ms, 9) == never);
    // Nothing waited: it may be faster now, and the pause was not its slowness.
    pace.on_idle();
    CHECK(pace.expected(start, 100) == start);
    pace.on_reply(start + 10s);
    CHECK(pace.expected(start, 9) == start);
}

TEST_CASE("pace: replies that come in bunches are counted over a while") {
    Pace pace;
    for (int bunch = 0; bunch < 20; ++bunch) {
        for (int i = 0; i < 50; ++i) pace.on_reply(start + bunch * 50ms);
    }
    CHECK(pace.expected(start, 99) > start + 80ms);
    CHECK(pace.expected(start, 99) < start + 120ms);
}

TEST_CASE("retry: successes earn retries, and no more than a few are kept") {
    RetryBudget budget;
    for (int i = 0; i < 1000; ++i) budget.earn();
    int spent = 0;
    while (budget.spend()) ++spent;
    CHECK(spent == 10);
    for (int i = 0; i < 9; ++i) budget.earn();
    CHECK_FALSE(budget.spend());
    budget.earn();
    CHECK(budget.spend());
    CHECK(budget.retries_left() == 0);
}

TEST_CASE("retry: pauses double, keep to what the server asks, and differ") {
    base::SeededRandom random(1);
    for (std::uint32_t attempt = 1; attempt < 40; ++attempt) {
        const Duration own = std::min<Duration>(5ms * (1 << std::min(attempt - 1, 10u)), 2s);
        for (int i = 0; i < 100; ++i) {
            const Duration pause = retry_pause(attempt, 7ms, random);
            REQUIRE(pause >= 7ms + own / 2);
            REQUIRE(pause < 7ms + own / 2 + own);
        }
    }
    CHECK(retry_pause(1, 0s, random) != retry_pause(1, 0s, random));
    CHECK(retry_pause(1, -1s, random) >= Duration::zero());
}
