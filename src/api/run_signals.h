// The signals of Runtime::run(). The kernel gives each to one reader in the process, which passes
// it to every run() there is.
#pragma once

#include <atomic>

#include <signal.h>

#include "base/unique_fd.h"

namespace weft::api {

// Of one run(). Thread: the one that made it, but for what others pass to it.
class RunSignals {
  public:
    // From here to its end SIGINT, SIGTERM and `state_signal` (0: none) are blocked in this thread;
    // those that come meanwhile do not end the program.
    explicit RunSignals(int state_signal);
    ~RunSignals();
    RunSignals(const RunSignals&) = delete;
    RunSignals& operator=(const RunSignals&) = delete;

    // False: the system gave no descriptor.
    bool is_usable() const { return signals_ && passed_; }
    // Readable when take() has something to do.
    int arrived_fd() const { return signals_.get(); }
    int passed_fd() const { return passed_.get(); }
    struct Taken {
        bool ends = false;  // SIGINT or SIGTERM.
        bool asks = false;  // The state signal.
    };
    // What came since the last time, to whatever run().
    Taken take();

  private:
    void pass_on();
    void note(int signal);

    const int state_signal_;
    sigset_t before_{};
    base::UniqueFd signals_, passed_;
    std::atomic<bool> ends_{false}, asks_{false};
};

}  // namespace weft::api
