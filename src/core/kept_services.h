// The services that the program's functions made for the contexts of a runtime (ServiceFactory).
#pragma once

#include <atomic>
#include <memory>

#include "base/assert.h"

namespace weft::core {

// What a context knows of them: a coroutine that may continue after the end of its runtime keeps
// them.
class KeptServices {
  public:
    // Before the first one is made; `services` is the same each time. Thread: the context's.
    void set(const std::shared_ptr<void>& services) {
        WEFT_ASSERT(services);
        if (is_set_.load(std::memory_order_relaxed)) return;
        if (services_.expired()) services_ = services;
        is_set_.store(true, std::memory_order_release);
    }
    // nullptr: there are none, or they are destroyed. Thread: any.
    std::shared_ptr<void> get() const {
        return is_set_.load(std::memory_order_acquire) ? services_.lock() : nullptr;
    }

  private:
    std::weak_ptr<void> services_;  // Constant once it was set.
    std::atomic<bool> is_set_{false};
};

}  // namespace weft::core
