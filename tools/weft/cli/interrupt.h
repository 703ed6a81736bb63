// Orderly end at ^C and SIGTERM: operations in flight are cancelled and clean up; then the process
// ends by the signal, as shells expect.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

#include <signal.h>

#include "base/unique_fd.h"

namespace weft::tool {

class Interrupt {
  public:
    // Takes the signals of this thread and of threads that it starts later. The first signal runs
    // `stop` on a separate thread; a second one ends the process at once.
    explicit Interrupt(std::function<void()> stop);
    // `stop` does not run any more. Ends the process by the first signal, if there was one.
    ~Interrupt();
    Interrupt(const Interrupt&) = delete;
    Interrupt& operator=(const Interrupt&) = delete;

  private:
    void loop();

    const std::function<void()> stop_;
    sigset_t before_{};
    base::UniqueFd signals_;
    base::UniqueFd done_;
    std::atomic<int> signal_{0};  // The first one; 0: none.
    std::thread thread_;
};

}  // namespace weft::tool
