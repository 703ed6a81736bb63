#include "rpc/wait_estimator.h"
#include "base/random.h"
#include "rpc/backoff.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::rpc;

static constexpr TimePoint start(1s);

// The number of calls of each method ahead of a call.
static auto ahead(std::uint32_t of_1, std::uint32_t of_2 = 0) {
    return [=](std::uint64_t method) { return method == 1 ? of_1 : method == 2 ? of_2 : 0u; };
}

TEST_CASE("wait estimator: the expected wait follows the time between replies") {
    WaitEstimator estimator;
    CHECK(estimator.expected(start, ahead(100)) == start);  // No estimate yet.
    for (int i = 0; i < 100; ++i) estimator.on_reply(start + i * 1ms, 1);
    CHECK(estimator.expected(start, ahead(100)) > start + 90ms);
    CHECK(estimator.expected(start, ahead(100)) < start + 110ms);
    CHECK(estimator.expected(never - 1ms, ahead(9)) == never);
    // No call waited: the server may be faster now, and the pause shows no slowness.
    estimator.on_idle();
    CHECK(estimator.expected(start, ahead(100)) == start);
    estimator.on_reply(start + 10s, 1);
    CHECK(estimator.expected(start, ahead(9)) == start);
}

TEST_CASE("wait estimator: replies in bunches are counted over a window") {
    WaitEstimator estimator;
    for (int bunch = 0; bunch < 20; ++bunch) {
        for (int i = 0; i < 50; ++i) estimator.on_reply(start + bunch * 50ms, 1);
    }
    CHECK(estimator.expected(start, ahead(100)) > start + 80ms);
    CHECK(estimator.expected(start, ahead(100)) < start + 120ms);
}

TEST_CASE("wait estimator: a server that stalled once does not count as slow") {
    WaitEstimator estimator;
    TimePoint now = start;
    for (int i = 0; i < 100; ++i) estimator.on_reply(now += 1ms, 1);
    for (const int pause_before : {40, 41, 45, 50, 60}) {
        now += 5s;
        for (int i = 0; i < pause_before; ++i) estimator.on_reply(now += 1ms, 1);
        CHECK(estimator.expected(now, ahead(100)) < now + 200ms);
    }
}

TEST_CASE("wait estimator: each method counts with its own replies, not with cheaper ones") {
    WaitEstimator estimator;
    TimePoint now = start;
    // Each slow reply of method 1 comes with a cheap one of method 2.
    for (int i = 0; i < 100; ++i) {
        estimator.on_reply(now += 50ms, 1);
        estimator.on_reply(now, 2);
    }
    CHECK(estimator.expected(now, ahead(0, 1000)) == now);  // Method 2 may be cheap.
    CHECK(estimator.expected(now, ahead(1000, 0)) == now);  // Method 1 may be cheap.
    CHECK(estimator.expected(now, ahead(100, 100)) > now + 4s);
    CHECK(estimator.expected(now, ahead(100, 1000)) > now + 4s);
    CHECK(estimator.expected(now, ahead(100, 1000)) < now + 6s);
}

TEST_CASE("wait estimator: there is no estimate when more methods reply than a window counts") {
    WaitEstimator estimator;
    for (int i = 0; i < 1000; ++i) {
        estimator.on_reply(start + i * 10ms,
                           static_cast<std::uint64_t>(i) % (WaitEstimator::methods_max + 1));
    }
    CHECK(estimator.expected(start, [](std::uint64_t) { return 10'000u; }) == start);
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

TEST_CASE("retry: the backoff doubles, adds the server's pause, and is randomized") {
    base::SeededRandom random(1);
    for (std::uint32_t attempt = 1; attempt < 40; ++attempt) {
        const Duration own = std::min<Duration>(5ms * (1 << std::min(attempt - 1, 10u)), 2s);
        for (int i = 0; i < 100; ++i) {
            const Duration pause = retry_backoff(attempt, 7ms, random);
            REQUIRE(pause >= 7ms + own / 2);
            REQUIRE(pause < 7ms + own / 2 + own);
        }
    }
    CHECK(retry_backoff(1, 0s, random) != retry_backoff(1, 0s, random));
    CHECK(retry_backoff(1, -1s, random) >= Duration::zero());
}
