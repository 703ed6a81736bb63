#include "base/random.h"
#include "rpc/pace.h"
#include "rpc/retry.h"
#include "support/catch.h"

using namespace weft;
using namespace weft::rpc;

static constexpr TimePoint start(1s);

// So many calls of each method wait before a call.
static auto ahead(std::uint32_t of_1, std::uint32_t of_2 = 0) {
    return [=](std::uint64_t method) { return method == 1 ? of_1 : method == 2 ? of_2 : 0u; };
}

TEST_CASE("pace: it learns how long replies take, and expects that of those in front") {
    Pace pace;
    CHECK(pace.expected(start, ahead(100)) == start);  // Nothing is known yet.
    for (int i = 0; i < 100; ++i) pace.on_reply(start + i * 1ms, 1);
    CHECK(pace.expected(start, ahead(100)) > start + 90ms);
    CHECK(pace.expected(start, ahead(100)) < start + 110ms);
    CHECK(pace.expected(never - 1ms, ahead(9)) == never);
    // Nothing waited: it may be faster now, and the pause was not its slowness.
    pace.on_idle();
    CHECK(pace.expected(start, ahead(100)) == start);
    pace.on_reply(start + 10s, 1);
    CHECK(pace.expected(start, ahead(9)) == start);
}

TEST_CASE("pace: replies that come in bunches are counted over a while") {
    Pace pace;
    for (int bunch = 0; bunch < 20; ++bunch) {
        for (int i = 0; i < 50; ++i) pace.on_reply(start + bunch * 50ms, 1);
    }
    CHECK(pace.expected(start, ahead(100)) > start + 80ms);
    CHECK(pace.expected(start, ahead(100)) < start + 120ms);
}

TEST_CASE("pace: a server that stood still once is not taken for a slow one") {
    Pace pace;
    TimePoint now = start;
    for (int i = 0; i < 100; ++i) pace.on_reply(now += 1ms, 1);
    for (const int pause_before : {40, 41, 45, 50, 60}) {
        now += 5s;
        for (int i = 0; i < pause_before; ++i) pace.on_reply(now += 1ms, 1);
        CHECK(pace.expected(now, ahead(100)) < now + 200ms);
    }
}

TEST_CASE("pace: calls wait for calls like those that were answered, not for cheaper ones") {
    Pace pace;
    TimePoint now = start;
    // Each window: 20 slow ones of method 1, and 20 cheap ones of method 2 at once.
    for (int i = 0; i < 100; ++i) {
        pace.on_reply(now += 50ms, 1);
        pace.on_reply(now, 2);
    }
    CHECK(pace.expected(now, ahead(0, 1000)) == now);  // They may all be answered at once.
    CHECK(pace.expected(now, ahead(1000, 0)) == now);  // Those may have been the cheap ones.
    CHECK(pace.expected(now, ahead(100, 100)) > now + 4s);
    CHECK(pace.expected(now, ahead(100, 1000)) > now + 4s);
    CHECK(pace.expected(now, ahead(100, 1000)) < now + 6s);
}

TEST_CASE("pace: it says nothing of more methods than it counts") {
    Pace pace;
    for (int i = 0; i < 1000; ++i) {
        pace.on_reply(start + i * 10ms, static_cast<std::uint64_t>(i) % (Pace::methods_max + 1));
    }
    CHECK(pace.expected(start, [](std::uint64_t) { return 10'000u; }) == start);
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
