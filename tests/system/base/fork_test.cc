// State that a forked child finds unlocked, whatever other threads of its parent were doing.
#include "base/fork.h"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "base/exiting.h"
#include "bulk/regions.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;
using namespace std::chrono_literals;

namespace {

std::atomic<bool> is_sought{false}, is_found{false};
pid_t finding_process = 0;

// Blocks in the parent until is_found.
bool find_slowly() {
    is_sought = true;
    while (::getpid() == finding_process && !is_found) std::this_thread::yield();
    return true;
}

}  // namespace

TEST_CASE("a forked child repeats a probe that a thread of its parent had begun") {
    finding_process = ::getpid();
    std::thread thread([] { CHECK(base::probe_once<find_slowly>()); });
    while (!is_sought) std::this_thread::yield();
    CHECK(test::end_of_child([] {
              ::alarm(20);
              return base::probe_once<find_slowly>() ? 0 : 1;
          }) == 0);
    is_found = true;
    thread.join();
    CHECK(base::probe_once<find_slowly>());
}

TEST_CASE("a forked child may call keep_forever() when a thread of its parent was inside it") {
    // In a separate process, since the memory is never freed.
    const int end = test::end_of_child([] {
        std::atomic<bool> over{false};
        std::thread thread([&over] {
            for (int i = 0; i < 1'000'000; ++i) bulk::keep_forever(Buffer());
            over = true;
        });
        thread.detach();
        for (int i = 0; i < 100 && !over; ++i) {
            const pid_t child = test::fork_child();
            if (child == 0) {
                ::alarm(20);
                bulk::keep_forever(Buffer());
                ::_exit(0);
            }
            int status = 0;
            if (::waitpid(child, &status, 0) != child || status != 0) ::_exit(1);
        }
        while (!over) std::this_thread::yield();
        return 0;
    });
    CHECK(end == 0);
}

namespace {

std::atomic<bool> is_marking{false}, is_forked{false};

// Stands for atexit(), which would leave its lock taken in a child. It lasts long enough for a fork
// that does not wait.
int mark_slowly(void (*)()) {
    is_marking = true;
    const auto end = std::chrono::steady_clock::now() + 100ms;
    while (!is_forked && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    is_marking = false;
    return 0;
}

}  // namespace

TEST_CASE("a forked child finds the lock of exit() free when a thread was in mark_exit()") {
    // Detached: ThreadSanitizer reports a thread that a child can't join as a leak.
    std::thread([] { base::mark_exit(mark_slowly); }).detach();
    while (!is_marking) std::this_thread::yield();
    CHECK(test::end_of_child([] { return is_marking ? 1 : 0; }) == 0);
    is_forked = true;
    while (is_marking) std::this_thread::yield();
}
