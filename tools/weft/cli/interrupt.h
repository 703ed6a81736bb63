// ^C, and SIGTERM, as an orderly end: what is under way is cancelled and cleans up after itself.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include <signal.h>

#include "base/unique_fd.h"

namespace weft::tool {

class Interrupt {
  public:
    // From here on, on this thread and those that it starts, the first signal runs `stop` on a
    // thread of its own; a second one ends the process at once.
    explicit Interrupt(std::function<void()> stop);
    // `stop` does not run any more.
    ~Interrupt();
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

    bool came() const { return came_; }

  private:
    void loop();

    const std::function<void()> stop_;
    sigset_t before_{};
    base::UniqueFd signals_;
    base::UniqueFd over_;
    std::atomic<bool> came_{false};
    std::thread thread_;
};

}  // namespace weft::tool
