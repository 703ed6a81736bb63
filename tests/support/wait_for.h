// For tests whose runtimes have threads of their own.
#pragma once

#include <chrono>
#include <functional>
#include <thread>

#include "support/patience.h"

namespace weft::test {

// Until it is so: `true`; false when it never became so.
inline bool wait_for(const std::function<bool()>& done) {
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!done()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::yield();
    }
    return true;
}

}  // namespace weft::test
