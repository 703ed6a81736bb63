#include "base/exiting.h"

#include <atomic>
#include <cstdlib>

#include "base/fork.h"

namespace weft::base {
namespace {

constinit thread_local bool exiting_on_this_thread = false;
constinit std::atomic<bool> exiting_on_any_thread = false;

// exit() destroys the thread_local objects of its thread before any of static storage.
struct ExitDetector {
    bool is_watching = true;
    ~ExitDetector() { exiting_on_this_thread = true; }
};

thread_local ExitDetector exit_detector;

constexpr int marks_max = 100'000;  // Each takes 32 bytes until the process ends.

}  // namespace

void watch_exit() { exit_detector.is_watching = true; }

// exit() calls the registered functions in reverse order, among the destructors of static objects.
void mark_exit(int (*at_exit)(void (*)())) noexcept {
    static constinit std::atomic<int> marks{0};
    if (marks.load(std::memory_order_relaxed) >= marks_max) return;
    marks.fetch_add(1, std::memory_order_relaxed);
    const ForkBlocker no_fork;  // A child finds the lock of atexit() and exit() free.
    (void)at_exit([] { exiting_on_any_thread = true; });
}

bool is_exiting() { return exiting_on_this_thread || exiting_on_any_thread; }

}  // namespace weft::base
