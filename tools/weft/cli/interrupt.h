// ^C, and SIGTERM, as an orderly end: what is under way is cancelled and cleans up after itself;
// then the process ends by the signal, as shells expect.
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
    // `stop` does not run any more. Ends the process by the signal that came.
    ~Interrupt();
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

  private:
    void loop();

    const std::function<void()> stop_;
    sigset_t before_{};
    base::UniqueFd signals_;
    base::UniqueFd over_;
    std::atomic<int> came_{0};  // The signal.
    std::thread thread_;
};

}  // namespace weft::tool
