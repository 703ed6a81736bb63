// Sleeps of a context, on kernels with and without epoll_pwait2().
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>

#include "base/unique_fd.h"
#include "base/wait_for_events.h"
#include "support/bare_machine.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;

namespace {

Duration cpu_time() {
    rusage usage{};
    ::getrusage(RUSAGE_SELF, &usage);
    const auto of = [](const timeval& time) {
        return std::chrono::seconds(time.tv_sec) + std::chrono::microseconds(time.tv_usec);
    };
    return of(usage.ru_utime) + of(usage.ru_stime);
}

// Returns 0 when sleeps last their time, use no CPU and end by an event.
int judge_sleeps() {
    const base::UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
    const base::UniqueFd event(::eventfd(0, EFD_CLOEXEC));
    epoll_event wanted{};
    wanted.events = EPOLLIN;
    if (::epoll_ctl(epoll.get(), EPOLL_CTL_ADD, event.get(), &wanted) != 0) return 1;
    const auto now = [] { return std::chrono::steady_clock::now(); };
    const Duration before = cpu_time();
    const auto start = now();
    for (int i = 0; i < 4; ++i) base::wait_for_events(epoll.get(), 50ms);
    if (now() - start < 200ms) return 2;
    if (cpu_time() - before > 100ms) return 3;
    const auto short_one = now();
    base::wait_for_events(epoll.get(), 300us);
    if (now() - short_one < 300us) return 4;
    const std::uint64_t one = 1;
    if (::write(event.get(), &one, sizeof one) != sizeof one) return 5;
    base::wait_for_events(epoll.get(), 1h);
    return 0;
}

}  // namespace

TEST_CASE("wait for events: a sleep lasts its time and ends by an event") {
    CHECK(judge_sleeps() == 0);
}

TEST_CASE("wait for events: a sleep lasts its time without epoll_pwait2()") {
    for (const unsigned error : {ENOSYS, EPERM}) {
        CHECK(test::end_of_child([&] {
                  if (!test::refuse_call(SYS_epoll_pwait2, error)) return 10;
                  return judge_sleeps() + (base::has_precise_waits() ? 20 : 0);
              }) == 0);
    }
}
