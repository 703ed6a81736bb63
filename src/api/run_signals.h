// The signals of Runtime::run(). The kernel delivers each to one reader in the process, which
// forwards it to every active run().
#pragma once

#include <atomic>

#include <signal.h>

#include "base/unique_fd.h"

namespace weft::api {

// The signals of one run(). Thread: that of the constructor, except for forwarded signals.
class RunSignals {
  public:
    // Until the destructor SIGINT, SIGTERM and `state_signal` (0: none) are blocked in this thread,
    // and do not end the program.
    explicit RunSignals(int state_signal);
    ~RunSignals();
    RunSignals(const RunSignals&) = delete;
    RunSignals& operator=(const RunSignals&) = delete;

    // False: the system gave no descriptor.
    bool is_usable() const { return signals_ && forwarded_; }
    // Readable when take() has something to do.
    int signal_fd() const { return signals_.get(); }
    int forwarded_fd() const { return forwarded_.get(); }
    struct Received {
        bool terminate = false;     // SIGINT or SIGTERM.
        bool report_state = false;  // The state signal.
    };
    // The signals since the last call, including forwarded ones.
    Received take();

  private:
    void forward();
    void record(int signal);

    const int state_signal_;
    sigset_t before_{};
    base::UniqueFd signals_, forwarded_;
    std::atomic<bool> terminate_{false}, report_state_{false};
};

}  // namespace weft::api
