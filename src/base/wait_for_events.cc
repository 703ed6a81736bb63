#include "base/wait_for_events.h"

#include <sys/epoll.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>

#include "base/own_descriptor.h"

namespace weft::base {

static std::atomic<bool> has_nanoseconds{true};

void wait_for_events(int epoll, Duration longest) {
    epoll_event events[8];
    if (has_nanoseconds.load(std::memory_order_relaxed)) {
        timespec timeout{};
        timeout.tv_sec = longest.count() / 1'000'000'000;
        timeout.tv_nsec = longest.count() % 1'000'000'000;
        const int got = ::epoll_pwait2(epoll, events, 8, &timeout, nullptr);
        if (got >= 0 || errno == EINTR) return;
        // Any other failure is the system's, or epoll_wait() has it, too.
        has_nanoseconds.store(false, std::memory_order_relaxed);
    }
    constexpr Duration day = 24h;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::min(longest, day));
    (void)check_open(::epoll_wait(epoll, events, 8, static_cast<int>(wait.count())));
}

bool waits_precisely() { return has_nanoseconds.load(std::memory_order_relaxed); }

}  // namespace weft::base
