#include "base/wait_for_events.h"

#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>

#include "base/assert.h"
#include "base/new_system_calls.h"
#include "base/own_descriptor.h"

namespace weft::base {

static std::atomic<bool> has_nanoseconds{true};

void wait_for_events(int epoll, Duration longest) {
    WEFT_DCHECK(longest >= Duration::zero());
    epoll_event events[8];
    if (has_nanoseconds.load(std::memory_order_relaxed)) {
        timespec timeout{};
        timeout.tv_sec = longest.count() / 1'000'000'000;
        timeout.tv_nsec = longest.count() % 1'000'000'000;
        constexpr std::size_t no_mask_bytes = 8;
        const long got =
            ::syscall(SYS_epoll_pwait2, epoll, events, 8, &timeout, nullptr, no_mask_bytes);
        if (got >= 0 || errno == EINTR) return;
        // Other failures: the kernel lacks the call, or epoll_wait() fails, too.
        has_nanoseconds.store(false, std::memory_order_relaxed);
    }
    constexpr Duration day = 24h;
    const auto wait = std::chrono::ceil<std::chrono::milliseconds>(std::min(longest, day));
    (void)check_open(::epoll_wait(epoll, events, 8, static_cast<int>(wait.count())));
}

void wait_for_any(std::span<pollfd> watched, Duration longest) {
    WEFT_DCHECK(longest >= Duration::zero());
    timespec timeout{};
    timeout.tv_sec = longest.count() / 1'000'000'000;
    timeout.tv_nsec = longest.count() % 1'000'000'000;
    if (::ppoll(watched.data(), watched.size(), &timeout, nullptr) > 0) check_polled(watched);
}

bool has_precise_waits() { return has_nanoseconds.load(std::memory_order_relaxed); }

}  // namespace weft::base
