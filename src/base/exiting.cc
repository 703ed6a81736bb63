#include "base/exiting.h"

#include <atomic>
#include <cstdlib>

#include "base/fork.h"

namespace weft::base {
namespace {

constinit thread_local bool exiting_here = false;
constinit std::atomic<bool> exiting_somewhere = false;

// exit() destroys the thread_local objects of its thread before any of static storage.
struct Witness {
    bool is_watching = true;
    ~Witness() { exiting_here = true; }
};

thread_local Witness witness;

constexpr int marks_max = 100'000;  // Each takes 32 bytes until the process ends.

}  // namespace

void watch_exit() { witness.is_watching = true; }

// exit() calls these in the reverse order, among the destructors of static objects.
void mark_exit(int (*at_exit)(void (*)())) noexcept {
    static constinit std::atomic<int> marks{0};
    if (marks.load(std::memory_order_relaxed) >= marks_max) return;
    marks.fetch_add(1, std::memory_order_relaxed);
    const ForksHeld whole;  // A child finds the lock of atexit() and exit() free.
    (void)at_exit([] { exiting_somewhere = true; });
}

bool is_exiting() { return exiting_here || exiting_somewhere; }

}  // namespace weft::base
