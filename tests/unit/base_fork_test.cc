// What a child that was forked while other threads were at it finds unlocked.
#include "base/fork.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "base/exiting.h"
#include "bulk/regions.h"
#include "support/catch.h"
#include "support/child.h"

using namespace weft;

namespace {

std::atomic<bool> is_sought{false}, is_found{false};
pid_t finding_process = 0;

// Takes the parent until it is_found.
bool find_slowly() {
    is_sought = true;
    while (::getpid() == finding_process && !is_found) std::this_thread::yield();
    return true;
}

}  // namespace

TEST_CASE("a forked child finds for itself what a thread of its parent was about to find") {
    finding_process = ::getpid();
    std::thread thread([] { CHECK(base::found_once<find_slowly>()); });
    while (!is_sought) std::this_thread::yield();
    CHECK(test::end_of_child([] {
              ::alarm(20);
              return base::found_once<find_slowly>() ? 0 : 1;
          }) == 0);
    is_found = true;
    thread.join();
    CHECK(base::found_once<find_slowly>());
}

TEST_CASE("a forked child keeps memory for ever though a thread of its parent was doing so") {
    // In a process of its own, for nothing of it is given back.
    const int end = test::end_of_child([] {
        std::atomic<bool> over{false};
        std::thread thread([&over] {
            for (int i = 0; i < 1'000'000; ++i) bulk::keep_for_ever(Buffer());
            over = true;
        });
        thread.detach();
        for (int i = 0; i < 100 && !over; ++i) {
            const pid_t child = test::fork_child();
            if (child == 0) {
                ::alarm(20);
                bulk::keep_for_ever(Buffer());
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

TEST_CASE("a forked child ends by exit() though a thread of its parent was marking the exit") {
    // In a process of its own, where the marks are of no other test.
    const int end = test::end_of_child([] {
        constexpr int rounds = 30;
        std::atomic<int> begun{0}, over{0};
        std::thread thread([&] {
            for (int round = 1; round <= rounds; ++round) {
                begun = round;
                for (int i = 0; i < 1000; ++i) base::mark_exit();
                while (over < round) std::this_thread::yield();
            }
        });
        for (int round = 1; round <= rounds; ++round) {
            while (begun < round) std::this_thread::yield();
            const pid_t child = test::fork_child();
            if (child == 0) {
                ::alarm(20);
                std::exit(0);
            }
            int status = 0;
            if (::waitpid(child, &status, 0) != child || status != 0) ::_exit(1);
            over = round;
        }
        thread.join();
        return 0;
    });
    CHECK(end == 0);
}
