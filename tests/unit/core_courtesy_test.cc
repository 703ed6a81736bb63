// How often one who spins lets others have the cpu.
#include "core/courtesy.h"

#include <sys/syscall.h>
#include <unistd.h>

#include "support/catch.h"

static thread_local int yields = 0;

// In the place of the C library's.
extern "C" int sched_yield() noexcept {
    ++yields;
    return static_cast<int>(syscall(SYS_sched_yield));
}

using namespace weft;

// Where more spin than there are cpus each one's turn is this long: the scheduler may let one who
// yields go on, though others wait.
TEST_CASE("courtesy: who waits yields after 128 polls at the latest") {
    core::Courtesy courtesy;
    for (int i = 0; i < 10'000; ++i) courtesy.idle();
    yields = 0;
    constexpr int polls = 100'000;
    for (int i = 0; i < polls; ++i) courtesy.idle();
    CHECK(yields >= polls / 128);
}

TEST_CASE("courtesy: who always finds something does not yield") {
    core::Courtesy courtesy;
    yields = 0;
    for (int i = 0; i < 100'000; ++i) {
        courtesy.idle();
        courtesy.busy();
    }
    CHECK(yields == 0);
}
