#include "support/child.h"

#ifdef __SANITIZE_ADDRESS__
#include <poll.h>

#include <array>
#include <cstddef>
#include <memory>
#include <thread>

static bool is_forked = false;

// In a forked child LeakSanitizer would report memory held by the parent's threads as lost, or wait
// for locks that those threads held.
extern "C" int __lsan_is_turned_off() { return is_forked ? 1 : 0; }
#endif

namespace weft::test {

#ifdef __SANITIZE_ADDRESS__
namespace {

// Takes each lock of the allocator, on a thread without cached memory, and the locks under which
// threads begin and end.
void take_locks_of_sanitizer() {
    std::thread([] {
        constexpr std::size_t largest = 1 << 18;  // Beyond its size classes.
        std::array<std::unique_ptr<char[]>, 256> all;
        std::size_t at = 0;
        for (std::size_t size = 1; size < largest; size += 1 + size / 16) {
            all[at++ % all.size()].reset(new char[size]);
        }
    }).join();
}

// True: the child reports readiness within 5 s.
bool is_ready(int fd) {
    constexpr int patience_ms = 5000;
    pollfd from{fd, POLLIN, 0};
    return ::poll(&from, 1, patience_ms) == 1;
}

}  // namespace

pid_t fork_child() {
    constexpr int tries_max = 20;
    for (int tries = 1;; ++tries) {
        int ready[2];
        REQUIRE(::pipe2(ready, O_CLOEXEC) == 0);
        const pid_t child = ::fork();
        if (child == 0) {
            is_forked = true;
            take_locks_of_sanitizer();
            ::close(ready[0]);
            ::close(ready[1]);  // The parent reads end of file.
            return 0;
        }
        ::close(ready[1]);
        const bool is_whole = child < 0 || is_ready(ready[0]);
        ::close(ready[0]);
        if (is_whole) return child;
        ::kill(child, SIGKILL);
        ::waitpid(child, nullptr, 0);
        REQUIRE(tries < tries_max);
    }
}
#else
pid_t fork_child() { return ::fork(); }
#endif

}  // namespace weft::test
