// For tests of runtimes with threads of their own.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

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

}  // namespace weft::test
