// How often a spinning thread yields the cpu.
#include "core/spin_yield.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "support/catch.h"

static thread_local int yields = 0;

// Replaces the function of the C library.
extern "C" int sched_yield() noexcept {
    ++yields;
    return static_cast<int>(syscall(SYS_sched_yield));
}

using namespace weft;

// When more threads spin than there are cpus, each thread's turn is this long: the scheduler may
// let a yielding thread go on although others wait.
TEST_CASE("spin yield: a waiting thread yields after 128 polls at the latest") {
    core::SpinYield spin_yield;
    for (int i = 0; i < 10'000; ++i) spin_yield.on_idle_poll();
    yields = 0;
    constexpr int polls = 100'000;
    for (int i = 0; i < polls; ++i) spin_yield.on_idle_poll();
    CHECK(yields >= polls / 128);
}

TEST_CASE("spin yield: a thread with an event at each poll does not yield") {
    core::SpinYield spin_yield;
    yields = 0;
    for (int i = 0; i < 100'000; ++i) {
        spin_yield.on_idle_poll();
        spin_yield.on_event();
    }
    CHECK(yields == 0);
}
