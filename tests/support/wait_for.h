// For tests of runtimes with threads of their own.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include <weft/sleep.h>
#include <weft/task.h>

#include "support/test_timeout.h"

namespace weft::test {

// Waits until `done()` is true; returns false when the time expires.
inline bool wait_for(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::yield();
    }
    return true;
}

// The same in a coroutine, which turns its context meanwhile. `done` outlives the task.
template <class Done>
Task<bool> until(const Done& done) {
    const auto end = std::chrono::steady_clock::now() + test_timeout;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) co_return false;
        (void)co_await sleep_for(100us);
    }
    co_return true;
}

}  // namespace weft::test
