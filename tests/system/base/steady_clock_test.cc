#include "base/steady_clock.h"

#include <atomic>
#include <thread>
#include <vector>

#include "support/catch.h"

using namespace weft;
using base::SteadyClock;

// The kernel's time is read before and after, so that an interruption widens the permitted
// interval.
static void check_against_kernel(int readings) {
    const SteadyClock clock;
    const Duration tolerance = 3us;
    TimePoint last{};
    bool monotonic = true;
    bool near = true;
    for (int i = 0; i < readings; ++i) {
        const TimePoint before = std::chrono::steady_clock::now();
        const TimePoint reading = clock.now();
        const TimePoint after = std::chrono::steady_clock::now();
        monotonic = monotonic && reading >= last;
        near = near && reading >= before - tolerance && reading <= after + tolerance;
        last = reading;
    }
    CHECK(monotonic);
    CHECK(near);
}

TEST_CASE("the steady clock never goes back and stays near the kernel's") {
    check_against_kernel(300'000);
}

TEST_CASE("the steady clock is right when a thread has not read it for 20 ms") {
    const SteadyClock clock;
    (void)clock.now();
    const TimePoint until = std::chrono::steady_clock::now() + 20ms;
    while (std::chrono::steady_clock::now() < until) {
    }
    check_against_kernel(10'000);
}

TEST_CASE("a time read by one thread is at most 20 us ahead of another thread's clock") {
    const SteadyClock clock;
    std::atomic<std::int64_t> shared{0};
    std::atomic<bool> stop{false};
    std::thread writer([&] {
        while (!stop) shared = clock.now().time_since_epoch().count();
    });
    std::int64_t worst = 0;
    for (int i = 0; i < 300'000; ++i) {
        const std::int64_t reading = shared;
        worst = std::max(worst, reading - clock.now().time_since_epoch().count());
    }
    stop = true;
    writer.join();
    CHECK(worst < 20'000);
}
